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
const NoRoom = "there is no room for the request beside those that are being answered"

// ErrNoRoom is the cause with which Grow gives up.
var ErrNoRoom = errors.New(NoRoom)

// Share is what a request holds of the budget. A nil Share holds nothing.
type Share struct {
	of    *turns.Shares
	owner turns.Owner
	n     atomic.Int64
	place atomic.Pointer[turns.Brief] // of those that are worked on; nil for none
}

// NewShare returns an empty Share for an owner.
func NewShare(of *turns.Shares, owner turns.Owner) *Share { return &Share{of: of, owner: owner} }

// Size returns how many bytes are held.
func (s *Share) Size() int64 { return s.n.Load() }

// Work keeps a place in the queue of the requests that are worked on.
func (s *Share) Work(place *turns.Brief) { s.place.Store(place) }

// Grow makes the share n bytes large. It waits up to patience for the room.
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

// End gives back everything that is held. It may be called more than once.
func (s *Share) End() {
	if s == nil {
		return
	}
	if n := s.n.Swap(0); n > 0 {
		s.of.Give(s.owner, n)
	}
	s.Worked()
}

// Worked gives back the place that Work has kept.
func (s *Share) Worked() {
	if s == nil {
		return
	}
	if place := s.place.Swap(nil); place != nil {
		place.Give()
	}
}

// PassOn moves what is held to a new Share, which somebody else ends.
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

// RetryAfter is when a client that found no room should try again.
const RetryAfter = 30 * time.Second

// RefusalJSON returns the error response for a request without room.
func RefusalJSON(id json.RawMessage, text string) json.RawMessage {
	return wire.ErrorOf(id, &jsonrpc.Error{
		Code:    jsonrpc.CodeInternalError,
		Message: text + "; try again later",
		Data: json.RawMessage(fmt.Sprintf(`{"%s":"%s","%s":true,"%s":%d}`,
			results.MetaToolCode, fault.NotReady, results.MetaRetryable, results.MetaRetryAfter, RetryAfter.Milliseconds())),
	})
}
