package launch

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// none stands for a missing descriptor.
const none = -1

// pipes are the descriptors of a process's standard streams.
type pipes struct {
	child  [3]int
	parent [3]int
}

// open makes the pipes. Orla's ends never block. It writes as much of input as fits to stdin, and
// closes Orla's end of stdin if that was everything. Else it returns the rest.
func (p *pipes) open(input []byte) (rest []byte, err error) {
	p.child, p.parent = [3]int{none, none, none}, [3]int{none, none, none}
	defer func() {
		if err != nil {
			p.closeChild()
			p.closeParent()
		}
	}()
	for i := range p.child {
		ours, theirs, err := newPipe()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			ours, theirs = theirs, ours
		}
		p.parent[i], p.child[i] = ours, theirs
		if err := neverBlock(ours); err != nil {
			return nil, err
		}
		if i == 0 && input != nil {
			if rest = put(ours, input); len(rest) == 0 {
				closeAll(p.parent[:1]) // all of input is in the pipe
			}
		}
	}
	return rest, nil
}

// neverBlock makes a descriptor non-blocking. It clears all other status flags, of which a new
// pipe and a pidfd have none.
func neverBlock(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_NONBLOCK)
	return err
}

// put writes to an empty pipe what fits, and returns the rest.
func put(fd int, input []byte) (rest []byte) {
	for len(input) > 0 {
		n, err := syscall.Write(fd, input)
		switch {
		case n > 0:
			input = input[n:]
		case err != syscall.EINTR:
			return input // the pipe is full
		}
	}
	return nil
}

// childAnd returns the descriptors of a new process: its ends of the pipes, and then files.
func (p *pipes) childAnd(files []*os.File) []uintptr {
	all := make([]uintptr, 0, len(p.child)+len(files))
	for _, fd := range p.child {
		all = append(all, uintptr(fd))
	}
	for _, f := range files {
		all = append(all, f.Fd())
	}
	return all
}

func (p *pipes) closeChild()  { closeAll(p.child[:]) }
func (p *pipes) closeParent() { closeAll(p.parent[:]) }

func closeAll(fds []int) {
	for i, fd := range fds {
		if fd != none {
			_ = syscall.Close(fd) // closing a pipe loses nothing
			fds[i] = none
		}
	}
}
