package control

import (
	"context"
	"net"
	"net/http"
	"syscall"

	"github.com/orla-project/orla/internal/launch/carry"
)

// State is a socket that a Server gives to the program that follows (docs/decisions/0051).
type State struct {
	Socket   string `json:"socket"`
	Lock     int    `json:"lock"`     // the descriptor of its lock file
	Listener int    `json:"listener"` // the descriptor that listens
}

// taken is a socket that the program before has given.
type taken struct {
	socket   *ownSocket
	listener net.Listener
}

// take takes a socket. It returns nil if there is none, or it cannot be used; another one is made then.
func (s *State) take() (*taken, error) {
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
	if u, ok := listener.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false) // release does, while it has the lock
	}
	return &taken{&ownSocket{path: s.Socket, lock: lock, stop: listener.Close}, listener}, nil
}

// obtain takes the socket that is wanted: that of the program before, if it is the same.
func (s *Server) obtain(ctx context.Context, want wanted) (*ownSocket, net.Listener, error) {
	before := s.before
	s.before = nil
	switch {
	case before == nil:
	case before.socket.path == want.location.Socket && before.socket.intact():
		before.socket.sign(want.owner)
		return before.socket, before.listener, nil
	default:
		before.socket.release()
	}
	return occupy(ctx, want.location, want.owner)
}

// Leave has Serve give the socket away at its end.
func (s *Server) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
}

// Given returns what Serve has given away; nil for nothing.
func (s *Server) Given() *State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given
}

// give gives the socket away if Leave was called. It accepts no more.
func (p *presence) give() {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.leaving || p.socket == nil {
		return
	}
	listener, ok := p.listener.(syscall.Conn)
	if !ok {
		return
	}
	fd, err := carry.Dup(listener)
	if err == nil {
		var lock int
		if lock, err = carry.Dup(p.socket.lock); err == nil {
			s.given = &State{Socket: p.socket.path, Lock: lock, Listener: fd}
			p.socket.abandon()
			p.socket = nil
		}
	}
	if err != nil {
		s.opts.Log.Warn("the control socket is not kept", "err", err)
	}
}

// abandon stops to use a socket that is the next program's.
func (s *ownSocket) abandon() {
	_ = s.stop()       // the duplicate listens
	_ = s.lock.Close() // the duplicate has the lock
}

// Upgrade tells which binary is executed next.
type Upgrade struct {
	Version string `json:"version" jsonschema:"The version of the new binary."`
	Number  int    `json:"number" jsonschema:"What upgrades in the status is when the new binary serves."`
}

// UpgradeRequest asks for an upgrade.
type UpgradeRequest struct {
	Binary string `json:"binary,omitempty" jsonschema:"The absolute path of the new binary. Without it, it is the file that this Orla was started from."`
}

// Upgrade has Orla execute another binary in its process. It returns when that binary was checked, and Orla is about
// to execute it.
func (c *Client) Upgrade(ctx context.Context, binary string) (*Upgrade, error) {
	return ask[Upgrade](ctx, c, http.MethodPost, "/v1/upgrade", UpgradeRequest{Binary: binary})
}

func (s *Server) upgrade(w http.ResponseWriter, r *http.Request) (any, error) {
	var asked UpgradeRequest
	if err := s.read(w, r, &asked); err != nil {
		return nil, err
	}
	return s.opts.Backend.Upgrade(r.Context(), asked.Binary)
}
