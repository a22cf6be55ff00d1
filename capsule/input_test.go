package capsule

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/manifest"
)

// answerer is a client whose answers are of a size.
type answerer struct {
	peer.Client
	answer json.RawMessage
	asked  int
}

func (a *answerer) Ask(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	a.asked++
	return a.answer, nil
}

// SPEC S2, N2: what a client of an older version is asked for one request is asked one thing
// after the other, and its answers count until the request is over, beside those of others.
func TestS2AnswersForARequestAreCounted(t *testing.T) {
	c := &Capsule{tool: manifest.Tool{Name: "t"}, log: slog.New(slog.DiscardHandler), given: turns.NewShares(roomForLargest(0))}
	var requests []string
	for i := range maxAsks {
		requests = append(requests, fmt.Sprintf(`"q%d":{"method":"roots/list"}`, i))
	}
	result := json.RawMessage(`{"resultType":"input_required","inputRequests":{` + strings.Join(requests, ",") + `}}`)
	ask := func(line turns.Line, size int) (*given, *answerer, error) {
		client := &answerer{answer: json.RawMessage(`"` + strings.Repeat("x", size) + `"`)}
		held := &given{of: c.given, line: line}
		_, err := c.fulfil(t.Context(), client, result, 1, held)
		return held, client, err
	}
	ann, client, err := ask(turns.Line{Caller: "ann", Session: "1"}, 8<<20)
	if f := fault.From(err); f == nil || f.Code != fault.RateLimited {
		t.Errorf("%d answers of 8 MiB: %v", client.asked, err)
	}
	if ann.size > 64<<20 || client.asked > 8 {
		t.Errorf("%d bytes of %d answers are held", ann.size, client.asked)
	}
	bob, client, err := ask(turns.Line{Caller: "bob", Session: "2"}, 1<<10)
	if err != nil || client.asked != maxAsks {
		t.Errorf("another one is asked %d times: %v", client.asked, err)
	}
	ann.drop()
	bob.drop()
	if n := c.given.Taken(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
}

// SPEC S2: what requires more input than may be required is not decoded: that would take
// many times its bytes.
func TestS2ManyRequirementsAreNotDecoded(t *testing.T) {
	c := &Capsule{tool: manifest.Tool{Name: "t"}, log: slog.New(slog.DiscardHandler), given: turns.NewShares(roomForLargest(0))}
	result := json.RawMessage(`{"resultType":"input_required","inputRequests":{"x":{}` + strings.Repeat(`,"x":{}`, 100_000) + `}}`)
	var err error
	bytes := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, err = c.fulfil(t.Context(), &answerer{}, result, 1, &given{of: c.given})
		}
	}).AllocedBytesPerOp()
	if f := fault.From(err); f == nil || f.Code != fault.ExecutionFailed || bytes > int64(len(result))/10 {
		t.Errorf("%d bytes are allocated for %d: %v", bytes, len(result), err)
	}
}
