package login

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// nobody is the owner of a connection that the kernel does not know of.
const nobody = math.MaxUint32

// ownerOf returns the user whose socket is one end of a connection on this machine. It is not known where the kernel
// does not tell of connections.
func ownerOf(end, other netip.AddrPort) (uid int, known bool) {
	const tries = 3 // the kernel may leave out lines while others come and go
	for range tries {
		for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			f, err := os.Open(path)
			if err != nil {
				continue
			}
			known = true
			uid, found := ownerIn(bufio.NewScanner(f), end, other)
			_ = f.Close() // it was only read
			if found {
				return uid, true
			}
		}
	}
	return nobody, known
}

// ownerIn looks for a connection in the lines of a table of the kernel's (proc_pid_net(5)).
func ownerIn(lines *bufio.Scanner, end, other netip.AddrPort) (uid int, found bool) {
	const local, remote, owner, inode = 1, 2, 7, 9
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) > inode && addressOf(fields[local]) == plain(end) && addressOf(fields[remote]) == plain(other) {
			if fields[inode] == "0" { // it was closed, and the kernel shows root as the user
				return nobody, true
			}
			uid, err := strconv.Atoi(fields[owner])
			return uid, err == nil
		}
	}
	return 0, false
}

func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// addressOf reads an address: words of 32 bits in the byte order of the machine, and a port.
func addressOf(text string) netip.AddrPort {
	words, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(words)
	number, wrong := strconv.ParseUint(port, 16, 16)
	if err != nil || wrong != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	ip, _ := netip.AddrFromSlice(raw)
	return plain(netip.AddrPortFrom(ip, uint16(number)))
}
