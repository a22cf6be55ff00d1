package turns

import (
	"context"
	"time"
)

// Door lets in a few at a time who need not be known, for work that anybody can ask for. Networks take turns, so that one that asks for
// much does not keep the others out. Its methods may be called from any goroutine.
type Door struct {
	places   *Queue
	waiting  *Shares
	patience time.Duration
}

// NewDoor returns a Door with so many places, before which so many wait at most, for as long as patience. Of those a network has at most
// half of what others leave.
func NewDoor(places, waiting int, patience time.Duration) *Door {
	return &Door{NewQueue(places, 0), NewShares(int64(waiting)), patience}
}

// Enter takes a place for a network (see NetworkOf), and waits for it. It reports false if too many wait, or it lasts too long, or ctx
// ends. Else Leave must be called.
func (d *Door) Enter(ctx context.Context, network string) bool {
	from := Owner{Session: network}
	if !d.waiting.Try(from, 1) {
		return false
	}
	defer d.waiting.Give(from, 1)
	limited, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return d.places.Take(limited, from) == nil
}

// Leave gives a place back.
func (d *Door) Leave(network string) { d.places.Give(Owner{Session: network}) }

// Do does work for a network in its turn, and keeps the place for as long again: so work takes the processors for half of the time. It
// reports false if it was not done.
func (d *Door) Do(ctx context.Context, network string, work func()) bool {
	if !d.Enter(ctx, network) {
		return false
	}
	began := time.Now()
	defer func() { time.AfterFunc(time.Since(began), func() { d.Leave(network) }) }()
	work()
	return true
}
