package launch

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deaths tells those that listen that a child of this program has died. While nobody listens
// the kernel sends no SIGCHLD: each would stop one thread for the runtime's handler.
var deaths announcer

type announcer struct {
	mu        sync.Mutex // guards the fields that follow
	listeners int
	handler   *action // the runtime's, while the kernel sends nothing; else nil
}

// action is what happens at a signal, as rt_sigaction(2) has it; at least as long as the
// kernel's. The zero action is the default, which for SIGCHLD is nothing.
type action [4]uint64

// listen has died receive from now on.
func (a *announcer) listen(died chan<- os.Signal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listeners++
	a.restore()
	signal.Notify(died, syscall.SIGCHLD)
}

// stop ends listen.
func (a *announcer) stop(died chan<- os.Signal) {
	signal.Stop(died)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listeners--; a.listeners == 0 {
		var handler action
		if setAction(&action{}, &handler) == 0 {
			a.handler = &handler
		}
	}
}

// close puts the runtime's handler back, for whoever else wants to hear of SIGCHLD.
func (a *announcer) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.restore()
}

// restore needs mu.
func (a *announcer) restore() {
	if a.handler != nil && setAction(a.handler, nil) == 0 {
		a.handler = nil
	}
}

func setAction(to, was *action) syscall.Errno {
	const bytesOfMask = 8
	_, _, errno := syscall.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD),
		uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(was)), bytesOfMask, 0, 0)
	return errno
}
