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
		return fail(check, "", "%q is not an address to listen on", address)
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
	holders := m.holders(ctx, inodes)
	comm := func(pid int) string { return m.read(fmt.Sprintf("proc/%d/comm", pid)) }
	isOurs := slices.IndexFunc(holders, func(pid int) bool { return slices.Contains(ours, pid) })
	_, disabled := os.Lstat(m.path(socketEnabled))
	switch {
	case isOurs >= 0:
		return ok(check, "Orla itself listens on %s (pid %d)", address, holders[isOurs])
	case len(holders) == 0 && disabled == nil, slices.Contains(holders, 1) && comm(1) == "systemd":
		return ok(check, "systemd listens on %s, which orla.socket is for", address)
	case len(holders) == 0:
		return fail(check, fix, "%s is taken, by a process that this user may not see", address)
	}
	return fail(check, fix, "%s is taken by %s (pid %d)", address, comm(holders[0]), holders[0])
}

// socketEnabled is there when systemd listens for Orla from boot on. Which
// sockets systemd has, only root can see.
const socketEnabled = "etc/systemd/system/sockets.target.wants/orla.socket"

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

// holders returns the processes that have one of the sockets, as far as this
// user may see.
func (m Machine) holders(ctx context.Context, inodes []string) []int {
	var links []string
	for _, inode := range inodes {
		links = append(links, "socket:["+inode+"]")
	}
	var pids []int
	processes, _ := filepath.Glob(m.path("proc/[0-9]*")) // the pattern is a good one
	for _, process := range processes {
		if ctx.Err() != nil {
			break
		}
		files, _ := os.ReadDir(filepath.Join(process, "fd")) // other users' cannot be read
		if slices.ContainsFunc(files, func(file os.DirEntry) bool {
			link, err := os.Readlink(filepath.Join(process, "fd", file.Name()))
			return err == nil && slices.Contains(links, link)
		}) {
			pid, _ := strconv.Atoi(filepath.Base(process)) // it is a number
			pids = append(pids, pid)
		}
	}
	return pids
}
