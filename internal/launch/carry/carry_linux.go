package carry

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/orla-project/orla/internal/launch/mainthread"
)

// variable has the number of the document's descriptor.
const variable = "ORLA_STATE"

// seals keep a document from being changed.
const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// maxDocument bounds a document in bytes.
const maxDocument = 1 << 30

// dup duplicates a descriptor. The duplicate is closed by an exec that does not clear that.
func dup(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3) }

// Possible returns why this process cannot execute another program; nil if it can.
func Possible() error {
	if !mainthread.Kept() {
		return fmt.Errorf("the main thread is not kept")
	}
	return nil
}

// Seal returns a file in memory with a document, which nobody can change.
func Seal(document []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("orla-state", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "orla-state")
	if _, err = f.Write(document); err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = f.Close() // it is discarded
		return nil, err
	}
	return f, nil
}

// Read reads a document that Seal has made.
func Read(f *os.File) ([]byte, error) {
	if has, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0); err != nil || has&seals != seals {
		return nil, fmt.Errorf("descriptor %d is not a sealed document", f.Fd())
	}
	return io.ReadAll(io.NewSectionReader(f, 0, maxDocument))
}

// Received returns the document of the program before; nil if there is none. Only the first call does: it
// removes the variable that says where it is.
func Received() ([]byte, error) {
	text, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil
	}
	_ = os.Unsetenv(variable) // it has a name
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q is not a descriptor", variable, text)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil {
		return nil, fmt.Errorf("%s=%q: %w", variable, text, err) // it may be anything, and stays open
	}
	f := os.NewFile(uintptr(fd), "orla-state")
	defer func() { _ = f.Close() }() // only read
	return Read(f)
}

// Exec executes another program in this process, with the descriptors that were given and a document. It
// returns only if that fails.
func Exec(path string, argv []string, document *os.File) error {
	fds := append(Given(), int(document.Fd()))
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, variable+"=") })
	env = append(env, variable+"="+strconv.Itoa(int(document.Fd())))
	var before unix.Rlimit // exec lowers it to what this program was started with
	known := unix.Getrlimit(unix.RLIMIT_NOFILE, &before) == nil
	err := syscall.ENOSYS
	mainthread.Do(func() {
		inherit(fds, 0)
		err, _ = errors.AsType[syscall.Errno](syscall.Exec(path, argv, env))
		inherit(fds, unix.FD_CLOEXEC)
	})
	if known {
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before) // it was this before
	}
	return fmt.Errorf("execute %s: %w", path, err)
}

// inherit sets whether an exec closes some descriptors.
func inherit(fds []int, flag int) {
	for _, fd := range fds {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFD, flag) // they are open
	}
}
