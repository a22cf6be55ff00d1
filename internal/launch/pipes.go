package launch

import (
	"os"
	"syscall"
)

// none is where a descriptor would be.
const none = -1

// pipes are the three streams between Orla and one process, as descriptors.
type pipes struct {
	child  [3]int
	parent [3]int
}

// open makes the pipes. Orla's ends never block. As much of input as fits goes
// into stdin right away; when that is all, Orla's end is closed. The rest is
// returned.
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
		if err := syscall.SetNonblock(ours, true); err != nil {
			return nil, err
		}
		if i == 0 && input != nil {
			if rest = put(ours, input); len(rest) == 0 {
				closeAll(p.parent[:1]) // all is in the pipe
			}
		}
	}
	return rest, nil
}

// put writes what fits into a fresh pipe, and returns the rest.
func put(fd int, input []byte) (rest []byte) {
	for len(input) > 0 {
		n, err := syscall.Write(fd, input)
		switch {
		case n > 0:
			input = input[n:]
		case err != syscall.EINTR:
			return input // it is full
		}
	}
	return nil
}

// childAnd returns what a process begins with: its ends, and further files.
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
			_ = syscall.Close(fd) // a pipe of ours: nothing can be lost by closing it
			fds[i] = none
		}
	}
}
