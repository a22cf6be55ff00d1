package rpc

import (
	"context"
	"fmt"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
)

// prompt is a Transport whose other side answers each request at once.
type prompt struct {
	conn *Conn
	sent string
}

func (p *prompt) Send(_ context.Context, call *Pending, line [][]byte) error {
	p.sent = string(line[0])
	p.conn.Receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{}}`, call.ID))
	return nil
}
func (*prompt) Post(turns.Owner, []byte) {}
func (*prompt) Close()                   {}

// SPEC L1: what the params of a call are made of need not be on the heap.
func TestL1ParamsUseNoHeap(t *testing.T) {
	p := &prompt{}
	p.conn = New(p, Options{Handler: &keeping{}})
	pieces := [][]byte{[]byte(`{"n":`), nil, []byte(`}`)}
	makes := func(call func()) float64 { return testing.AllocsPerRun(100, call) }
	with := func(params func(int64) [][]byte) {
		if _, err := p.conn.CallWith(t.Context(), Request{Method: "work"}, params); err != nil {
			t.Error(err)
		}
	}
	plain := makes(func() { with(func(int64) [][]byte { return pieces }) })
	captured := makes(func() {
		var large [64]int
		large[7] = 7
		with(func(int64) [][]byte {
			if large[7]++; large[7] != 8 {
				t.Error("asked twice")
			}
			return pieces
		})
	})
	if captured > plain {
		t.Errorf("a call allocates %.0f times, and %.0f times with params that use something", plain, captured)
	}
	if want := `"method":"work","params":{"n":}`; len(p.sent) < len(want) || p.sent[len(p.sent)-len(want)-2:len(p.sent)-2] != want {
		t.Errorf("sent %q", p.sent)
	}
}
