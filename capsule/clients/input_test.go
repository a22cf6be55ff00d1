package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
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
	in := NewInputs("t", 0, slog.New(slog.DiscardHandler))
	var requests []string
	for i := range maxQuestions {
		requests = append(requests, fmt.Sprintf(`"q%d":{"method":"roots/list"}`, i))
	}
	result := json.RawMessage(`{"resultType":"input_required","inputRequests":{` + strings.Join(requests, ",") + `}}`)
	ask := func(owner turns.Owner, size int) (*Given, *answerer, error) {
		client := &answerer{answer: json.RawMessage(`"` + strings.Repeat("x", size) + `"`)}
		given := in.Given(owner)
		_, err := in.Fulfil(t.Context(), client, result, 1, given)
		return given, client, err
	}
	ann, client, err := ask(turns.Owner{Caller: "ann", Session: "1"}, 8<<20)
	if f := fault.From(err); f == nil || f.Code != fault.RateLimited {
		t.Errorf("%d answers of 8 MiB: %v", client.asked, err)
	}
	if ann.size > 64<<20 || client.asked > 8 {
		t.Errorf("%d bytes of %d answers are held", ann.size, client.asked)
	}
	bob, client, err := ask(turns.Owner{Caller: "bob", Session: "2"}, 1<<10)
	if err != nil || client.asked != maxQuestions {
		t.Errorf("another one is asked %d times: %v", client.asked, err)
	}
	ann.Drop()
	bob.Drop()
	if n := in.room.Taken(); n != 0 {
		t.Errorf("%d bytes are held at the end", n)
	}
}

// SPEC S2: what requires more input than may be required is not decoded: that would take
// many times its bytes.
func TestS2ManyRequirementsAreNotDecoded(t *testing.T) {
	in := NewInputs("t", 0, slog.New(slog.DiscardHandler))
	result := json.RawMessage(`{"resultType":"input_required","inputRequests":{"x":{}` + strings.Repeat(`,"x":{}`, 100_000) + `}}`)
	var err error
	bytes := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			_, err = in.Fulfil(t.Context(), &answerer{}, result, 1, in.Given(turns.Owner{}))
		}
	}).AllocedBytesPerOp()
	if f := fault.From(err); f == nil || f.Code != fault.ExecutionFailed || bytes > int64(len(result))/10 {
		t.Errorf("%d bytes are allocated for %d: %v", bytes, len(result), err)
	}
}
