package rpc

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
)

// keeping is a Handler that keeps what it gets.
type keeping struct{ parts []json.RawMessage }

func (k *keeping) Notified(_ string, params json.RawMessage) { k.parts = append(k.parts, params) }
func (k *keeping) Asked(id json.RawMessage, _ string, params json.RawMessage) {
	k.parts = append(k.parts, id, params)
}
func (*keeping) Unclaimed(json.RawMessage) {}
func (*keeping) Noise([]byte, string)      {}

// SPEC S2: who keeps a part of a message does not keep the rest, whose bytes nobody counts.
func TestS2APartOfAMessageIsKeptAlone(t *testing.T) {
	junk := `"junk":"` + strings.Repeat("x", 64<<10) + `"`
	for name, text := range map[string]string{
		"a question": `{"jsonrpc":"2.0","id":"a","method":"ask","params":"small",` + junk + `}`,
		"a notice":   `{"jsonrpc":"2.0","method":"tell","params":"small",` + junk + `}`,
		"a batch":    `[{"jsonrpc":"2.0","id":"a","method":"ask","params":"small"},{` + junk + `}]`,
	} {
		t.Run(name, func(t *testing.T) {
			l, k := &loop{}, &keeping{}
			l.conn = New(l, Options{Handler: k})
			line := []byte(text)
			l.conn.Receive(line)
			clear(line) // a part that lies in it is not the same any more
			for _, part := range k.parts {
				if !json.Valid(part) {
					t.Errorf("%q is kept as a part of the line", part)
				}
			}
			if len(k.parts) == 0 {
				t.Error("nothing is handed on")
			}
		})
	}
	t.Run("an answer", func(t *testing.T) {
		line := []byte(`{"jsonrpc":"2.0","id":1,"result":"small",` + junk + `}`)
		l := &answering{line: line}
		l.conn = New(l, Options{Handler: &keeping{}})
		result, err := l.conn.Call(t.Context(), Request{Method: "work", Owner: turns.Owner{Session: "1"}})
		clear(line)
		if err != nil || string(result) != `"small"` {
			t.Errorf("the answer is %q, %v", result, err)
		}
	})
}

// answering is a Transport that answers each request with a line.
type answering struct {
	loop
	line []byte
}

func (a *answering) Send(_ context.Context, call *Pending, _ [][]byte) error {
	err := a.conn.Sending(call)
	a.conn.Receive(a.line)
	return err
}
