package doctor

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Port looks at whether an address is free to listen on, or who has it. The
// processes in ours are allowed to.
func (m Machine) Port(ctx context.Context, address string, ours ...int) Finding {
	const check = "port"
	host, port, err := net.SplitHostPort(address)
	number, numberErr := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || numberErr != nil:
		return fail(check, "", "%q is no address to listen on", address)
	case number == 0:
		return ok(check, "any free one is taken")
	}
	fix := fmt.Sprintf("orla --port %d", (number+1)%65536)
	inodes, known := m.listeners(host, uint16(number))
	switch {
	case !known:
		if dials(ctx, address) {
			return fail(check, fix, "somebody listens on %s", address)
		}
		return ok(check, "nobody listens on %s", address)
	case len(inodes) == 0:
		return ok(check, "%s is free", address)
	}
	pid := m.holder(ctx, inodes)
	switch {
	case pid == 0:
		return fail(check, fix, "%s is taken, by a process that this user may not see", address)
	case slices.Contains(ours, pid):
		return ok(check, "Orla itself listens on %s (pid %d)", address, pid)
	}
	return fail(check, fix, "%s is taken by %s (pid %d)", address, m.read(fmt.Sprintf("proc/%d/comm", pid)), pid)
}

// dials reports whether somebody answers at an address of this machine.
func dials(ctx context.Context, address string) bool {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}
	_ = conn.Close() // nothing was sent
	return true
}

// listeners returns the sockets that stand in the way of listening on a host's
// port, and whether that can be known here.
func (m Machine) listeners(host string, port uint16) (inodes []string, known bool) {
	if host == "localhost" {
		host = "127.0.0.1"
	}
	wanted, _ := netip.ParseAddr(host) // invalid for a name, and for "": any address is meant
	for _, file := range []string{"proc/net/tcp", "proc/net/tcp6"} {
		table := m.read(file)
		known = known || table != ""
		for line := range strings.Lines(table) {
			const localAddress, state, inode, listens = 1, 3, 9, "0A"
			fields := strings.Fields(line)
			if len(fields) <= inode || fields[state] != listens {
				continue
			}
			at, ok := tableAddress(fields[localAddress])
			if !ok || at.Port() != port {
				continue
			}
			anywhere := at.Addr().IsUnspecified() || !wanted.IsValid() || wanted.IsUnspecified()
			if anywhere || at.Addr().Unmap() == wanted.Unmap() {
				inodes = append(inodes, fields[inode])
			}
		}
	}
	return inodes, known
}

// tableAddress reads an address of /proc/net/tcp: words of four bytes in the
// machine's order, and a port.
func tableAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	number, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(number)), ok
}

// holder returns the process that has one of the sockets, or 0.
func (m Machine) holder(ctx context.Context, inodes []string) int {
	var links []string
	for _, inode := range inodes {
		links = append(links, "socket:["+inode+"]")
	}
	processes, _ := filepath.Glob(m.path("proc/[0-9]*")) // the pattern is a good one
	for _, process := range processes {
		if ctx.Err() != nil {
			return 0
		}
		files, _ := os.ReadDir(filepath.Join(process, "fd")) // other users' cannot be read
		for _, file := range files {
			if link, err := os.Readlink(filepath.Join(process, "fd", file.Name())); err == nil && slices.Contains(links, link) {
				pid, _ := strconv.Atoi(filepath.Base(process)) // it is a number
				return pid
			}
		}
	}
	return 0
}
