// Package budget counts the bytes of the requests that are being read or answered. A request
// without room waits, or is refused.
package budget

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// Requests bounds the bytes of requests that are being read or answered. A client that is
	// alone may have half of it (turns.Shares).
	Requests = 128 << 20
	// Small is up to how many bytes a request is not counted: a connection takes more.
	Small = 4 << 10
	// EachMessage is how many bytes a message counts in addition to its own, if other messages
	// of its client wait too.
	EachMessage = 16 << 10
)

// NoRoom is the text of the error of a request without room.
const NoRoom = "there is no room for the request in addition to those that are being answered"

// ErrNoRoom is the cause with which Grow gives up.
var ErrNoRoom = errors.New(NoRoom)

// Account is what a request has of the budget. A nil Account has nothing.
type Account struct {
	of    *turns.Shares
	owner turns.Owner
	n     atomic.Int64
	place atomic.Pointer[turns.Brief] // of those that are worked on; nil for none
}

// NewAccount returns an empty Account for an owner.
func NewAccount(of *turns.Shares, owner turns.Owner) *Account { return &Account{of: of, owner: owner} }

// Size returns how many bytes are held.
func (a *Account) Size() int64 { return a.n.Load() }

// Work keeps a place in the queue of the requests that are worked on.
func (a *Account) Work(place *turns.Brief) { a.place.Store(place) }

// Grow makes the account n bytes large. It waits up to patience for the room.
func (a *Account) Grow(ctx context.Context, n int64, patience time.Duration) error {
	more := n - a.n.Load()
	if more <= 0 {
		return nil
	}
	if !a.of.Try(a.owner, more) {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrNoRoom)
		defer cancel()
		if err := a.of.Take(ctx, a.owner, more); err != nil {
			return err
		}
	}
	a.n.Add(more)
	return nil
}

// End gives back everything that is held. It may be called more than once.
func (a *Account) End() {
	if a == nil {
		return
	}
	if n := a.n.Swap(0); n > 0 {
		a.of.Give(a.owner, n)
	}
	a.Worked()
}

// Worked gives back the place that Work has kept.
func (a *Account) Worked() {
	if a == nil {
		return
	}
	if place := a.place.Swap(nil); place != nil {
		place.Give()
	}
}

// PassOn moves what is held to a new Account, which somebody else ends.
func (a *Account) PassOn() *Account {
	if a == nil {
		return nil
	}
	to := NewAccount(a.of, a.owner)
	to.n.Store(a.n.Swap(0))
	to.place.Store(a.place.Swap(nil))
	return to
}

// Patience is how long a request waits for room.
const Patience = 10 * time.Second

// RetryAfter is when a client that found no room should try again.
const RetryAfter = 30 * time.Second

// RefusalJSON returns the error response for a request without room.
func RefusalJSON(id json.RawMessage, code fault.Code, text string) json.RawMessage {
	return wire.ErrorOf(id, &jsonrpc.Error{
		Code:    jsonrpc.CodeInternalError,
		Message: text + "; try again later",
		Data: json.RawMessage(fmt.Sprintf(`{"%s":"%s","%s":true,"%s":%d}`,
			results.MetaToolCode, code, results.MetaRetryable, results.MetaRetryAfter, RetryAfter.Milliseconds())),
	})
}
