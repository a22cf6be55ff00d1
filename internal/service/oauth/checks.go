package oauth

import (
	"context"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

const (
	// maxWaiting bounds the checks that wait for their turn. A network has at most half of what others leave.
	maxWaiting = 512
	// turnPatience is how long a check waits for its turn.
	turnPatience = 10 * time.Second
)

// checks bound what is checked of tokens at once: anybody can make up tokens, and to see that a signature is not the issuer's takes
// up to some milliseconds (SPEC N2, S2).
type checks struct {
	places  *turns.Queue
	waiting *turns.Shares // of maxWaiting
}

// newChecks returns checks that take half of the processors for half of the time at most.
func newChecks(processors int) checks {
	return checks{turns.NewQueue(max(1, processors/2), 0), turns.NewShares(maxWaiting)}
}

// inTurn does work for a network, in its turn. The Refusal says why it was not done.
func (c checks) inTurn(ctx context.Context, from turns.Owner, work func()) *Refusal {
	if !c.waiting.Try(from, 1) {
		return busy
	}
	limited, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	err := c.places.Take(limited, from)
	c.waiting.Give(from, 1)
	if err != nil {
		return busy
	}
	began := time.Now()
	defer func() { time.AfterFunc(time.Since(began), func() { c.places.Give(from) }) }()
	work()
	return nil
}

// busy refuses a token that could not be checked in time.
var busy = &Refusal{Of: ErrUnavailable, Reason: "too many tokens are being checked; try again later"}
