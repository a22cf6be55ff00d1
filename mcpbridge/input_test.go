package mcpbridge_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// stateful is a world whose peer requires input of each call that brings no answers. It
// returns what the peer was given.
func stateful(t *testing.T, requires string) (*world, chan peer.Input) {
	t.Helper()
	w := talking(t, nil)
	given := make(chan peer.Input, 10)
	w.raw("echo", func(_ context.Context, call peer.Call) (json.RawMessage, error) {
		if !call.Client.Declared().Repeats {
			t.Errorf("the client has declared %+v", call.Client.Declared())
		}
		given <- call.Input
		if call.Input.Responses == nil {
			return json.RawMessage(requires), nil
		}
		return json.RawMessage(`{"resultType":"complete","content":[]}`), nil
	})
	return w, given
}

// SPEC D8 and MCP 2026-07-28, basic/patterns/mrtr: what a peer requires reaches a client of the
// stateless era as it is, and the peer gets the client's answers as they are and its own
// state. A state of Orla's own conversations is not a peer's.
func TestD8WhatAPeerRequiresPassesThrough(t *testing.T) {
	const questions = `"inputRequests":{"q":{"method":"roots/list","params":{"x":12345678901234567890}}}`
	w, given := stateful(t, `{"resultType":"input_required",`+questions+`,"requestState":"s\u0041\n:/="}`)
	f := w.front(t, httpfront.Settings{})
	r := f.round(t, "")
	state, _ := required(t, r)
	if !strings.Contains(string(r.result), questions) {
		t.Errorf("the client got %s", r.result)
	}
	within(t, given, "call")
	r = f.round(t, `,"inputResponses":{"q":{"roots":[],"n":1.0}},"requestState":`+string(rawjson.Quote(state)))
	if got := within(t, given, "call"); string(got.Responses) != `{"q":{"roots":[],"n":1.0}}` || string(got.State) != `"sA\n:/="` {
		t.Errorf("the peer was given %s and %s", got.Responses, got.State)
	}
	if strings.Count(string(r.result), `"resultType":"complete"`) != 1 {
		t.Errorf("the client got %s", r.result)
	}
}

// SPEC N2: a peer does not see whose a request is, so Orla lets only the client that was
// given a state give it back, and only with the same request.
func TestN2AStateIsItsClients(t *testing.T) {
	const answered = `,"inputResponses":{"q":{"roots":[]}},"requestState":`
	w, given := stateful(t, `{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list","params":{}}},"requestState":"1"}`)
	f := w.front(t, httpfront.Settings{Verify: tokens})
	// A client that has declared nothing is answered another way than one that has.
	plain := func(args, more string, who []string) reply {
		body, headers := newEra("tools/call", "echo", `"name":"echo","arguments":`+args+more)
		return f.post(t, body, append(headers, who...)...)
	}
	ann, bob := bearer("ann"), bearer("bob")
	for what, r := range map[string]reply{
		"of a client that can be asked":    f.round(t, "", ann...),
		"of a client that cannot be asked": plain(`{"a":1}`, "", ann),
	} {
		signed, _ := required(t, r)
		state := string(rawjson.Quote(signed))
		for name, r := range map[string]reply{
			"another caller":    f.round(t, answered+state, bob...),
			"other arguments":   plain(`{"a":2}`, answered+state, ann),
			"the peer's words":  f.round(t, answered+`"1"`, ann...),
			"a forged one":      f.round(t, answered+`"peer:AAAA:1"`, ann...),
			"another state":     f.round(t, answered+state[:len(state)-1]+`2"`, ann...),
			"without signature": f.round(t, answered+`"peer::1"`, ann...),
		} {
			if !r.failed || r.code != jsonrpc.CodeInvalidParams {
				t.Errorf("%s, %s: the client got %s", what, name, r.raw)
			}
		}
		if r := f.round(t, answered+state, ann...); r.result == nil {
			t.Errorf("%s: its own client got %s", what, r.raw)
		}
	}
	if len(given) != 4 {
		t.Fatalf("the peer was given %d calls", len(given))
	}
	for range 4 {
		if got := <-given; got.State != nil && string(got.State) != `"1"` {
			t.Errorf("the peer was given %s", got.State)
		}
	}
}
