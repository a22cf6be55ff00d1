package unixsocket

import (
	"errors"
	"net"
	"os"
	"syscall"

	"github.com/orla-project/orla/internal/launch/carry"
)

// State is a socket that goes over to the program that follows (docs/decisions/0051).
type State struct {
	Socket   string `json:"socket"`
	Lock     int    `json:"lock"`     // the descriptor of its lock file
	Listener int    `json:"listener"` // the descriptor that listens
}

// Take takes a socket. It returns nil if there is none, or it cannot be used; another one is made then.
func (s *State) Take() (*Socket, error) {
	if s == nil {
		return nil, nil
	}
	lock, err := carry.File(s.Lock, s.Socket)
	if err != nil {
		return nil, err
	}
	listener, err := carry.Listener(s.Listener)
	if err != nil {
		_ = lock.Close() // which releases it
		return nil, err
	}
	return newSocket(s.Socket, lock, listener), nil
}

// Give gives the socket to the next program. This one accepts no more then.
func (s *Socket) Give() (*State, error) {
	listener, ok := s.Listener.(syscall.Conn)
	if !ok {
		return nil, errors.New("it has no descriptor")
	}
	fd, err := carry.Dup(listener)
	if err != nil {
		return nil, err
	}
	lock, err := carry.Dup(s.lock)
	if err != nil {
		return nil, err
	}
	_ = s.Stop()       // the duplicate listens
	_ = s.lock.Close() // the duplicate has the lock
	return &State{Socket: s.Path, Lock: lock, Listener: fd}, nil
}

func newSocket(path string, lock *os.File, l net.Listener) *Socket {
	if u, ok := l.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // Release does, while it has the lock
	}
	return &Socket{Path: path, Listener: l, Stop: l.Close, lock: lock}
}
