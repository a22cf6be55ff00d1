package offers

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/manifest"
)

// SPEC D7a: lists are waited for once more when a capsule that was given up is READY, and not when it has said them.
func TestD7aListsAreExpectedOnceMore(t *testing.T) {
	tool := manifest.Tool{Name: "cap", Kind: manifest.Capsule, Source: "/tools/cap/tool.yaml"}
	tool.Runtime.Handshake = manifest.HandshakeMCP
	o := New(tool, nil, nil, slog.New(slog.DiscardHandler))
	if o.Expect() {
		t.Error("they are expected again, while they are waited for")
	}
	o.GiveUp()
	if now := o.Current(); !now.Known || !now.Silent {
		t.Errorf("given up: %+v", now)
	}
	changed := o.Current().Changed
	if !o.Expect() || o.Current().Known || o.Current().Silent {
		t.Errorf("expected: %+v", o.Current())
	}
	<-changed
	o.Set(records.Offered{Tools: []json.RawMessage{json.RawMessage(`{"name":"one","inputSchema":{"type":"object"}}`)}})
	if o.Expect() || !o.Current().Known {
		t.Errorf("said: %+v", o.Current())
	}
}
