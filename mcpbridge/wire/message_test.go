package wire_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/mcpbridge/wire"
)

// SPEC N2: bytes that are not text end many capsules. They are refused, wherever they stand.
func TestN2AMessageIsText(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for text, want := range map[string]bool{
		nested(500):                    true,
		nested(501):                    false,
		`{"a":"é"}`:                    true,
		"{\"a\":\"\xff\"}":             false,
		"{\"\xc0\x80\":1}":             false,
		"[\"\xed\xa0\x80\"]":           false,
		"\"\xf4\x90\x80\x80\"":         false,
		`"` + "\u2028\U0001F600" + `"`: true,
	} {
		if got := wire.Valid([]byte(text)); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

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
