package oauth

import (
	"context"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

const (
	// maxWaiting bounds the checks that wait for their turn.
	maxWaiting = 512
	// turnPatience is how long a check waits for its turn.
	turnPatience = 10 * time.Second
)

// checks bound what is checked of tokens at once: anybody can make up tokens, and to see that a signature is not the issuer's takes
// up to some milliseconds (SPEC N2, S2).
type checks struct{ door *turns.Door }

// newChecks returns checks that take half of the processors for half of the time at most.
func newChecks(processors int) checks {
	return checks{turns.NewDoor(max(1, processors/2), maxWaiting, turnPatience)}
}

// inTurn does work for a network, in its turn. The Refusal says why it was not done.
func (c checks) inTurn(ctx context.Context, network string, work func()) *Refusal {
	if !c.door.Do(ctx, network, work) {
		return &Refusal{Of: ErrUnavailable, Reason: "too many tokens are being checked; try again later"}
	}
	return nil
}
