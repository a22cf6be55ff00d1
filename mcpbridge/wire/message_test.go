package wire_test

import (
	"testing"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC S2: whatever gets an answer, which may have to wait for its reader, counts.
func TestS2WhatGetsAnAnswer(t *testing.T) {
	for text, want := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`:                 true,
		` {"jsonrpc":"2.0","id":1,"method":"ping"} `:               true,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`:   false,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                     false,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`: false,
		`no JSON`:                               true,
		`{"jsonrpc":"1.0","id":1}`:              true,
		`{"jsonrpc":"1.0","method":"tell"}`:     true,
		`{"jsonrpc":"2.0","id":1}`:              false, // an answer that says nothing
		`{"jsonrpc":"2.0"}`:                     true,
		`{"id":1,"x":""}`:                       true,
		`{"jsonrpc":"2.0","id":{},"result":{}}`: true,
		`17`:                                    true,
	} {
		if got := wire.AsksSomething([]byte(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
