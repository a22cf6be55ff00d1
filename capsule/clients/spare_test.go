package clients_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/capsule/clients"
)

// SPEC N2: progress and log messages may be left out, and nothing else, in the forms that the SDKs write.
func TestN2WhatMayBeLeftOut(t *testing.T) {
	for line, want := range map[string]struct {
		call  int64
		spare bool
	}{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}`:                                  {7, true},
		`{"method":"notifications/progress","params":{"progress":1,"message":"\"progressToken\":5","progressToken":12},"jsonrpc":"2.0"}`: {12, true},
		`{"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x", "_meta": {"orla/call": 3}}}`:     {3, true},
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`:                                        {0, true},
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"a","progress":1}}`:                                {0, true},
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"message":"` + strings.Repeat("x", 5000) + `"}}`: {0, true},
		`{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"x"}}`:                                              {0, false},
		`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`:                                                                  {0, false},
		`{"jsonrpc":"2.0","id":1,"method":"notifications/message","params":{}}`:                                                          {0, false},
		`{"jsonrpc":"2.0","id":1,"result":{"method":"notifications/message"}}`:                                                           {0, false},
		`{"jsonrpc":"2.0","id":"a","method":"elicitation/create","params":{}}`:                                                           {0, false},
		`[{"jsonrpc":"2.0","method":"notifications/message","params":{}},{"jsonrpc":"2.0","id":1,"result":{}}]`:                          {0, false},
		"":                {0, false},
		"a line of a log": {0, false},
	} {
		if call, spare := clients.Spare([]byte(line)); call != want.call || spare != want.spare {
			t.Errorf("%.200s: %d, %v; want %d, %v", line, call, spare, want.call, want.spare)
		}
	}
}
