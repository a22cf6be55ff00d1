package supervisor

import (
	"context"

	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// Admitted is what Options.Admit says of a call that it does not refuse.
type Admitted struct {
	// Approve, if not nil, waits until somebody has approved the call. It may change the arguments and the
	// client of the call, which has no place while it waits: Approve calls again before the call goes on.
	Approve func(ctx context.Context, call *peer.Call, again func() error) error
	// Done, if not nil, is called at the call's end. sent says that the call may have reached its tool.
	Done func(sent bool)
	// Judge, if not nil, says whether the call may still be made, while it waits.
	Judge rejudge.Judge
}

// approved waits until a call may go on. Meanwhile it takes no place of those that calls in flight share, and
// ends as soon as Orla stops.
func (s *Supervisor) approved(ctx context.Context, one *flight, call *peer.Call, approve func(context.Context, *peer.Call, func() error) error) error {
	if !s.waits(one, true) {
		return errStopping
	}
	again := func() error {
		if !s.shares.Try(one.owner, 1) {
			return errTooMany
		}
		if !s.waits(one, false) {
			s.shares.Give(one.owner, 1)
			return errStopping
		}
		return nil
	}
	s.shares.Give(one.owner, 1)
	return approve(ctx, call, again)
}

// waits notes whether a call waits without a place. It reports false if Orla is stopping.
func (s *Supervisor) waits(one *flight, waits bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses {
		return false
	}
	one.waits, one.placeless = waits, waits
	return true
}
