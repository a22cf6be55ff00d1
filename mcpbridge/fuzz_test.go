package mcpbridge_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/results"
)

// FuzzPassed holds what is done to messages and results without decoding them
// against encoding/json: they stay JSON, and what is not ours to change stays.
func FuzzPassed(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `5`, ``, ` { "content" : [ ] } `, `{"isError":true,"_meta":{"io.modelcontextprotocol/x":1,"y":[1.0]}}`, `{"_meta":{"0io.modelcontextprotocol/x":"io.modelcontextprotocol/x"}}`, `{"_meta":5,"_meta":{"a":1}}`,
		`{"cont\u0065nt":[],"\"":1}`, `{"_meta":{"\"":1},"isError":true}`, `{"resultType":"x"}`, call(1, "x"),
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a","_meta":{"b":1},"inputResponses":{"q":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"role":"x"}}`, `{"method":"prompts/get","params":null}`, `{"method":"tools/call","params":{"_meta":null}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !json.Valid(raw) {
			return
		}
		_, _ = results.Of(peer.Answer{Raw: raw}, nil)
		for _, newest := range []bool{false, true} {
			passed, ok := mcpbridge.Passed(raw, newest)
			if !ok {
				continue
			}
			var had, has map[string]json.RawMessage
			if err := json.Unmarshal(passed, &has); err != nil {
				t.Fatalf("%q passes as %q: %v", raw, passed, err)
			}
			if err := json.Unmarshal(raw, &had); err != nil {
				t.Fatalf("%q has a result, but: %v", raw, err)
			}
			var meta map[string]json.RawMessage
			if err := json.Unmarshal(has["_meta"], &meta); err != nil && has["_meta"] != nil {
				t.Fatalf("%q passes as %q: _meta: %v", raw, passed, err)
			}
			for key := range meta {
				if own := newest && key == mcp.MetaKeyServerInfo; strings.HasPrefix(key, "io.modelcontextprotocol/") && !own {
					t.Fatalf("%q passes as %q, with the protocol's %q", raw, passed, key)
				}
			}
			for key, value := range had {
				if key != "_meta" && !strings.ContainsRune(key, '\uFFFD') && !same(has[key], value) {
					t.Fatalf("%q: %q is %q; want %q", raw, key, has[key], value)
				}
			}
		}
	})
}

// FuzzMessages holds how a message is read against encoding/json: whatever it is, it is
// refused or it is a message, and its id is known.
func FuzzMessages(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, `5`, call(1, "x"), `{"jsonrpc":"2.0","id":"\u0061","method":"ping"}`, `{"jsonrpc":"2.0","id":1.0,"method":"ping","params":null}`,
		`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"a","_meta":{"b":1},"inputResponses":{"q":{}}}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"role":"x"}}`, `{"\u006asonrpc":"2.0","id":null,"method":"x"}`, `{"jsonrpc":"2.0","id":{},"method":"tools\/call","params":[]}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":5,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"roots":null}}}}`,
	} {
		f.Add([]byte(seed))
	}
	b := mcpbridge.New(newCatalog(), mcpbridge.Options{Version: "1", Log: slog.New(slog.DiscardHandler)})
	f.Fuzz(func(t *testing.T, raw []byte) {
		raw = bytes.TrimSpace(raw)
		if !json.Valid(raw) {
			return
		}
		id, refused := mcpbridge.Read(b, raw)
		var want map[string]json.RawMessage
		if err := json.Unmarshal(raw, &want); err != nil {
			if !refused {
				t.Fatalf("%q is taken for a message", raw)
			}
			return
		}
		if id != nil && !json.Valid(id) {
			t.Fatalf("%q has the id %q", raw, id)
		}
		if !refused && string(want["id"]) != "null" && !same(id, want["id"]) && want["id"] != nil {
			t.Fatalf("%q has the id %q, want %q", raw, id, want["id"])
		}
	})
}

// same compares two values, however they are spaced and escaped.
func same(a, b json.RawMessage) bool {
	var x, y bytes.Buffer
	if json.Compact(&x, a) != nil || json.Compact(&y, b) != nil {
		return false
	}
	if bytes.Equal(x.Bytes(), y.Bytes()) {
		return true
	}
	var escaped bytes.Buffer // as a key that had an escape has the whole written anew
	json.HTMLEscape(&escaped, y.Bytes())
	return bytes.Equal(x.Bytes(), escaped.Bytes())
}
