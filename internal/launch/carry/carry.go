// Package carry takes open descriptors and a document from one program to the next one of the same process
// (docs/decisions/0051). A package that gives a descriptor away duplicates it here. The duplicate stays open when
// the package closes its own, and over an exec. The next program takes it by its number.
package carry

import (
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
)

// given are the descriptors that were given and not taken.
var given = struct {
	mu  sync.Mutex
	fds map[int]bool
}{fds: map[int]bool{}}

// Dup gives a duplicate of a descriptor away, and returns its number.
func Dup(of syscall.Conn) (int, error) {
	raw, err := of.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	if outer := raw.Control(func(open uintptr) { fd, err = dup(int(open)) }); outer != nil {
		return -1, outer
	}
	if err != nil {
		return -1, err
	}
	given.mu.Lock()
	defer given.mu.Unlock()
	given.fds[fd] = true
	return fd, nil
}

// Given returns the descriptors that were given and not taken, in order.
func Given() []int {
	given.mu.Lock()
	defer given.mu.Unlock()
	return slices.Sorted(maps.Keys(given.fds))
}

// Receive says which descriptors the program before has given.
func Receive(fds []int) {
	given.mu.Lock()
	defer given.mu.Unlock()
	for _, fd := range fds {
		given.fds[fd] = true
	}
}

// File takes a descriptor.
func File(fd int, name string) (*os.File, error) {
	given.mu.Lock()
	defer given.mu.Unlock()
	if !given.fds[fd] {
		return nil, fmt.Errorf("descriptor %d was not given", fd)
	}
	delete(given.fds, fd)
	return os.NewFile(uintptr(fd), name), nil
}

// Listener takes a descriptor of a socket that listens.
func Listener(fd int) (net.Listener, error) {
	f, err := File(fd, "listener")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the listener has its own
	return net.FileListener(f)
}

// Conn takes a descriptor of a connection.
func Conn(fd int) (net.Conn, error) {
	f, err := File(fd, "connection")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // the connection has its own
	return net.FileConn(f)
}

// CloseRest closes the descriptors that were given and not taken, and returns how many there were.
func CloseRest() int {
	given.mu.Lock()
	defer given.mu.Unlock()
	n := len(given.fds)
	for fd := range given.fds {
		_ = syscall.Close(fd) // whoever has the other end sees it
	}
	clear(given.fds)
	return n
}
