package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/call/turns"
)

// loop is a Transport whose other side the test plays.
type loop struct{ conn *Conn }

func (l *loop) Send(_ context.Context, call *Pending, _ [][]byte) error { return l.conn.Sending(call) }
func (*loop) Post(turns.Owner, []byte)                                  {}
func (*loop) Close()                                                    {}

// noting is a Handler that hands each notification to the call that its params begin with.
type noting struct {
	t    *testing.T
	conn *Conn
}

func (n *noting) Notified(method string, params json.RawMessage) {
	var id int64
	if _, err := fmt.Sscanf(string(params), `"%d`, &id); err != nil {
		n.t.Error(err)
	}
	n.conn.Note(id, method, params)
}
func (*noting) Asked(json.RawMessage, string, json.RawMessage) {}
func (*noting) Unclaimed(json.RawMessage)                      {}
func (*noting) Noise([]byte, string)                           {}

// SPEC S2: the notes that wait for slow clients are bounded for all calls together, and calls
// that end give their room back.
func TestS2NotesOfAllCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, h := &loop{}, &noting{t: t}
		c := New(l, Options{Handler: h})
		l.conn, h.conn = c, c
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		const calls = 100
		over := make(chan struct{}, calls)
		for id := 1; id <= calls; id++ {
			go func() {
				_, err := c.Call(ctx, Request{Method: "work", Owner: turns.Owner{Caller: "ann", Session: "1"}, Note: func(string, json.RawMessage) { <-release }})
				if !errors.Is(err, context.Canceled) {
					t.Errorf("a call ends with %v", err)
				}
				over <- struct{}{}
			}()
			synctest.Wait()
			for range 16 {
				c.Receive(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"n","params":"%d%s"}`, id, strings.Repeat("x", 60<<10)))
			}
			synctest.Wait()
		}
		if n := c.notes.Taken(); n > maxAllNotes/2+1<<20 {
			t.Errorf("%d bytes of notes wait for one caller", n)
		}
		cancel()
		close(release)
		for range calls {
			<-over
		}
		if n := c.notes.Taken(); n != 0 {
			t.Errorf("%d bytes of notes count when all calls are over", n)
		}
	})
}
