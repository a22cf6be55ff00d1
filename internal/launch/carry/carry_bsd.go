//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package carry

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errUnsupported is why nothing is carried here.
var errUnsupported = errors.New("this system has no upgrade in place; restart Orla")

func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) }

// Possible returns why this process cannot execute another program.
func Possible() error { return errUnsupported }

// Seal fails.
func Seal([]byte) (*os.File, error) { return nil, errUnsupported }

// Read fails.
func Read(*os.File) ([]byte, error) { return nil, errUnsupported }

// Received returns nil: there is no document.
func Received() ([]byte, error) { return nil, nil }

// Exec fails.
func Exec(string, []string, *os.File) error { return errUnsupported }
