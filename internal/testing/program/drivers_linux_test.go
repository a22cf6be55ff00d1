package program

import (
	"net"
	"os"
	"os/exec"
	"syscall"
)

// forks: drivers in Python are forks of one process.
const forks = true

func forkPythons(argv []string) error {
	pythons.once.Do(func() {
		pythons.err = func() error {
			pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			ours, theirs := os.NewFile(uintptr(pair[0]), "orders"), os.NewFile(uintptr(pair[1]), "orders")
			defer func() { _, _ = ours.Close(), theirs.Close() }() // there are copies
			cmd := exec.Command(argv[0], argv[1], "--forks")
			cmd.Stderr, cmd.ExtraFiles = os.Stderr, []*os.File{theirs}
			conn, err := net.FileConn(ours)
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				return err
			}
			pythons.orders, pythons.cmd = conn.(*net.UnixConn), cmd //nolint:forcetypeassert // it is one
			return nil
		}()
	})
	return pythons.err
}
