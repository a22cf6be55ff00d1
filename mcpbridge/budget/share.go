// Package budget counts the bytes of the requests that are being read or answered, and has
// a request that finds no room wait or be refused.
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
	// Requests bounds the bytes of requests that are being read or answered.
	// A client that is alone gets half of it (turns.Shares).
	Requests = 128 << 20
	// Small is how many bytes of each nobody counts: a connection takes more.
	Small = 4 << 10
	// EachMessage is what each message counts as that waits beside others: to be answered,
	// and for its client to take the answer.
	EachMessage = 16 << 10
)

// NoRoom is why a request is refused.
const NoRoom = "there is no room for the request beside those that are being answered"

// ErrNoRoom is the cause with which Grow gives up.
var ErrNoRoom = errors.New(NoRoom)

// Share is what a request holds of the budget. nil holds nothing.
type Share struct {
	of    *turns.Shares
	owner turns.Owner
	n     atomic.Int64
	place atomic.Pointer[turns.Brief] // of those that are worked on; nil for none
}

// NewShare returns an empty share of one who takes part in a budget.
func NewShare(of *turns.Shares, owner turns.Owner) *Share { return &Share{of: of, owner: owner} }

// Size is how many bytes are held.
func (s *Share) Size() int64 { return s.n.Load() }

// Work notes the place that is held among those that are worked on.
func (s *Share) Work(place *turns.Brief) { s.place.Store(place) }

// Grow makes the share one of n bytes, and waits at most patience for the room.
func (s *Share) Grow(ctx context.Context, n int64, patience time.Duration) error {
	more := n - s.n.Load()
	if more <= 0 {
		return nil
	}
	if !s.of.Try(s.owner, more) {
		ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrNoRoom)
		defer cancel()
		if err := s.of.Take(ctx, s.owner, more); err != nil {
			return err
		}
	}
	s.n.Add(more)
	return nil
}

// End gives back what is held. It may be called more than once.
func (s *Share) End() {
	if s == nil {
		return
	}
	if n := s.n.Swap(0); n > 0 {
		s.of.Give(s.owner, n)
	}
	s.Worked()
}

// Worked gives back the place among those that are worked on.
func (s *Share) Worked() {
	if s == nil {
		return
	}
	if place := s.place.Swap(nil); place != nil {
		place.Give()
	}
}

// PassOn makes the share another's to end.
func (s *Share) PassOn() *Share {
	if s == nil {
		return nil
	}
	to := NewShare(s.of, s.owner)
	to.n.Store(s.n.Swap(0))
	to.place.Store(s.place.Swap(nil))
	return to
}

// Patience is how long a request waits for room.
const Patience = 10 * time.Second

// RetryAfter is after how long a client should try again that found no room.
const RetryAfter = 30 * time.Second

// RefusalJSON is the error response to what there is no room for.
func RefusalJSON(id json.RawMessage, text string) json.RawMessage {
	return wire.ErrorOf(id, &jsonrpc.Error{
		Code:    jsonrpc.CodeInternalError,
		Message: text + "; try again later",
		Data: json.RawMessage(fmt.Sprintf(`{"%s":"%s","%s":true,"%s":%d}`,
			results.MetaToolCode, fault.NotReady, results.MetaRetryable, results.MetaRetryAfter, RetryAfter.Milliseconds())),
	})
}
