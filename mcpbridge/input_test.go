package mcpbridge_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/supervisor"
)

// SPEC D8, 2026-07-28 basic/patterns/mrtr: what a peer requires reaches a client of the
// stateless era as it is, and the peer gets the client's answers and its own state as
// they are. A state of Orla's own conversations is not a peer's.
func TestD8WhatAPeerRequiresPassesThrough(t *testing.T) {
	const requires = `{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list","params":{"x":12345678901234567890}}},"requestState":"s\u0041/="}`
	w := talking(t, nil)
	given := make(chan peer.Input, 10)
	w.raw("echo", func(_ context.Context, call supervisor.Call) (json.RawMessage, error) {
		if !call.Client.Declared().Repeats || !strings.Contains(string(call.Client.Declared().Capabilities), `"roots"`) {
			t.Errorf("the client has declared %+v", call.Client.Declared())
		}
		given <- call.Input
		if call.Input.Responses == nil {
			return json.RawMessage(requires), nil
		}
		return json.RawMessage(`{"resultType":"complete","content":[]}`), nil
	})
	f := w.front(t, mcpbridge.HTTPSettings{})
	r := f.round(t, "")
	if !strings.Contains(string(r.result), requires[1:len(requires)-1]) {
		t.Errorf("the client got %s", r.result)
	}
	within(t, given, "call")
	r = f.round(t, `,"inputResponses":{"q":{"roots":[],"n":1.0}},"requestState":"s\u0041/="`)
	if got := within(t, given, "call"); string(got.Responses) != `{"q":{"roots":[],"n":1.0}}` || string(got.State) != `"s\u0041/="` {
		t.Errorf("the peer was given %s and %s", got.Responses, got.State)
	}
	if strings.Count(string(r.result), `"resultType":"complete"`) != 1 {
		t.Errorf("the client got %s", r.result)
	}
}
