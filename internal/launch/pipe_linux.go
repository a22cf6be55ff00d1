package launch

import "syscall"

// newPipe makes a pipe that no other process inherits.
func newPipe() (r, w int, err error) {
	var fds [2]int
	err = syscall.Pipe2(fds[:], syscall.O_CLOEXEC)
	return fds[0], fds[1], err
}
