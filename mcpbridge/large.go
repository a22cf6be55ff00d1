package mcpbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/file/memfile"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	// answersBudget bounds the bytes of all answers on their way from tools to clients. An
	// answer without room waits, within its deadline.
	answersBudget = 128 << 20
	// maxReads bounds the reads and lists of one caller that wait for room. All callers together
	// may have twice as many.
	maxReads = 256
)

// largeAnswers are the answers that are too large for one message. They are kept, and read
// as resources (SPEC G5a).
type largeAnswers struct {
	store    *results.Store
	inline   atomic.Int64  // Options.MaxInline
	reads    *turns.Shares // of reads that wait for room
	patience time.Duration // how long a read waits
}

func newLargeAnswers(r Rules) *largeAnswers {
	return &largeAnswers{
		store:    results.NewStore(func(caller string, groups []string) int64 { return r.Limits(caller, groups).KeptMemory }),
		reads:    turns.NewShares(2 * maxReads), // an owner that is alone gets half
		patience: budget.Patience,
	}
}

// readLarge answers a resources/read of a kept answer, or of a part of one.
func (b *Bridge) readLarge(ctx context.Context, r *Request, uri string) (wire.Parts, *jsonrpc.Error) {
	notFound := &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: rawjson.Pair("uri", uri)}
	path, ok := strings.CutPrefix(uri, results.Prefix)
	if !ok {
		return nil, notFound
	}
	id, part, inParts := strings.Cut(path, "/")
	a, ok := b.large.store.Get(id, r.from.Subject)
	if !ok {
		return nil, notFound
	}
	if inParts {
		offset, length, _ := strings.Cut(part, "/")
		from, err1 := strconv.Atoi(offset)
		most, err2 := strconv.Atoi(length)
		if err1 != nil || err2 != nil || from < 0 || most < 0 {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "a part is named " + results.Prefix + "ID/OFFSET/LENGTH, in bytes"}
		}
		part, err := a.Part(from, most)
		if err != nil { // it was dropped since
			return nil, notFound
		}
		a = part
	}
	// On a stream of many messages, one that is too large ends the connection and every call
	// in flight. An HTTP response is separate.
	most := 2 * b.large.inline.Load()
	if r.from.Transport == client.StreamableHTTP {
		most = math.MaxInt64
	}
	size, err := b.roomToRead(ctx, a, most)
	switch {
	case errors.Is(err, memfile.ErrGone):
		return nil, notFound
	case err != nil:
		return nil, b.refused(ctx, wire.MethodRead, err)
	case size > most:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf(
			"the answer is too large for one message of this transport; read it in parts of %d bytes, at %s%s/OFFSET/LENGTH", most/results.Sixfold, results.Prefix, id)}
	}
	var result wire.Parts
	if err := turns.AccountOf(ctx).WorkInParts(ctx, a.Size(), func(rest func()) {
		a.Rest = rest
		result, err = a.Read(uri, size, r.self())
	}); err != nil {
		return nil, b.refused(ctx, wire.MethodRead, err)
	}
	if err != nil { // it was dropped since
		return nil, notFound
	}
	return result, nil
}

// roomToRead returns the size of an answer as JSON. If it is not over most, it also waits for
// room for it.
func (b *Bridge) roomToRead(ctx context.Context, a results.Kept, most int64) (size int64, err error) {
	err = b.awaitRoom(ctx, errNoRoomToRead, func(ctx context.Context, account *turns.Account) error {
		var gone error
		if err := account.WorkInParts(ctx, a.Size(), func(rest func()) {
			a.Rest = rest
			size, gone = a.EncodedSize()
		}); err != nil || gone != nil || size > most {
			return cmp.Or(err, gone)
		}
		return account.Need(ctx, size)
	})
	return size, err
}

var errNoRoomToRead = fault.New(fault.RateLimited, "other answers use all the memory for answers; read them and try again, or read this one in smaller parts")

// awaitRoom lets a request wait for room for its answer, for a limited time. The error is crowded if
// too many requests wait, or the time is over.
func (b *Bridge) awaitRoom(ctx context.Context, crowded *fault.Error, wait func(context.Context, *turns.Account) error) error {
	account := turns.AccountOf(ctx)
	if !b.large.reads.Try(account.Owner(), 1) {
		return crowded
	}
	defer b.large.reads.Give(account.Owner(), 1)
	ctx, cancel := context.WithTimeoutCause(ctx, b.large.patience, crowded)
	defer cancel()
	return wait(ctx, account)
}
