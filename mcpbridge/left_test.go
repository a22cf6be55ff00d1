package mcpbridge

import (
	"encoding/json"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/subscription"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC S2: a connection that ends while its session begins leaves nothing behind.
func TestS2NothingIsKeptOfAConnectionThatEndsMeanwhile(t *testing.T) {
	b := &Bridge{audience: newAudience(), subscriptions: subscription.New(nil), verbosity: newVerbosity()}
	s := client.New("a")
	b.EndSession(s)
	r := &Request{bridge: b, Message: &wire.Message{}, session: s}
	r.Params.Raw = json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`)
	if _, refused := b.initialize(t.Context(), r); refused != nil {
		t.Fatal(refused)
	}
	if n := len(b.audience.of); n != 0 {
		t.Errorf("%d are told of changes", n)
	}
}

// SPEC F2: whoever panics while it tells peers something does not keep the turn.
func TestF2APanicKeepsNoTurn(t *testing.T) {
	b, queue := &Bridge{}, turns.NewQueue(1, 0)
	func() {
		defer func() { _ = recover() }()
		_ = b.tellInTurn(t.Context(), queue, turns.Owner{}, func() bool { return true }, func() error { panic("a peer's") })
	}()
	if !queue.Try(turns.Owner{}) {
		t.Error("nobody can tell peers anything any more")
	}
}
