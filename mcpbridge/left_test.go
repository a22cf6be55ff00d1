package mcpbridge

import (
	"encoding/json"
	"testing"

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
