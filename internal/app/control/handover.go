package control

import (
	"context"
	"net/http"

	"github.com/orla-project/orla/internal/app/control/unixsocket"
)

// obtain takes the socket that is wanted: that of the program before, if it is the same.
func (s *Server) obtain(ctx context.Context, want wanted) (*unixsocket.Socket, error) {
	before := s.before
	s.before = nil
	switch {
	case before == nil:
	case before.Path == want.location.Socket && before.Intact():
		before.Sign(want.owner)
		return before, nil
	default:
		before.Release()
	}
	return unixsocket.Occupy(ctx, want.location, want.owner)
}

// Leave has Serve give the socket away at its end.
func (s *Server) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaving = true
}

// Given returns what Serve has given away; nil for nothing.
func (s *Server) Given() *unixsocket.State {
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
	given, err := p.socket.Give()
	if err != nil {
		s.opts.Log.Warn("the control socket is not kept", "err", err)
		return
	}
	s.given, p.socket = given, nil
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
