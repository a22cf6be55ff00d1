package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/service/outbound"
)

// A call that nobody waits for any more as it is sent is not sent, or the server
// is told.
func TestCancelledAsItIsSent(t *testing.T) {
	for name, end := range map[string]func(s *session, r *request){
		"by its client": func(s *session, _ *request) {
			s.cancel(t.Context(), parse([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)))
		},
		"by the end of the session": func(s *session, r *request) { s.abandon(t.Context(), r.cancel) },
	} {
		t.Run(name, func(t *testing.T) {
			var told atomic.Bool
			got := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var m struct{ Method string }
				if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
					t.Error(err)
				}
				if m.Method == "tools/call" {
					close(got)
					<-r.Context().Done()
					return
				}
				told.Store(true)
				w.WriteHeader(http.StatusAccepted)
			}))
			defer server.Close()
			client := outbound.New(outbound.Options{})
			defer client.Close()
			s := &session{endpoint: server.URL, opts: Options{Client: client}, shares: newShares(0), state: state{open: map[string]*request{}}}

			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			r := &request{message: parse([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`))}
			r.cancel = func() {
				go func() { served <- s.serve(ctx, r, nil) }()
				if s.mu.TryLock() { // it can be sent at this very moment
					s.mu.Unlock()
					<-got
				}
				cancel()
			}
			s.open["1"] = r
			end(s, r)
			err := <-served
			s.work.Wait()
			select {
			case <-got:
				if !told.Load() {
					t.Errorf("the server got the call (%v), and is not told that nobody waits for it", err)
				}
			default:
			}
		})
	}
}

// SPEC N2: a call that was cancelled before it is sent takes nobody's share, and is not
// sent. One that is sent takes its own.
func TestN2ACallThatNobodyWaitsForIsNotSent(t *testing.T) {
	for name, test := range map[string]struct {
		cancelled bool
		sent      int
	}{"cancelled": {true, 0}, "waited for": {false, 1}} {
		s := &session{outbox: make(chan message, 1), life: newLife()} // of its own: who cancels leaves a note
		conn := s.Open(rpc.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if test.cancelled {
			cancel()
		}
		called := make(chan error, 1)
		go func() {
			_, err := conn.Call(ctx, rpc.Request{Method: "tools/call", Owner: turns.Owner{Session: "1"}})
			called <- err
		}()
		if test.sent == 1 {
			if m := <-s.outbox; m.whose.Session != "1" || m.method != "tools/call" {
				t.Errorf("%s: %+v is sent", name, m)
			}
			cancel()
		}
		if err := <-called; !errors.Is(err, context.Canceled) || errors.Is(err, rpc.ErrNotSent) != test.cancelled {
			t.Errorf("%s: the call ends with %v", name, err)
		}
		if test.cancelled && len(s.outbox) > 0 {
			t.Errorf("%s: it is sent", name)
		}
	}
}

// What is known of questions stays bounded, however many a server cancels.
func TestN2QuestionsAreBounded(t *testing.T) {
	var q questions
	for i := range 10_000 {
		q.add(json.RawMessage(fmt.Sprint(i)), turns.Owner{Session: "1"})
	}
	q.add(json.RawMessage(strings.Repeat("1", 1000)), turns.Owner{Session: "1"})
	if n := len(q.whose) + len(q.older); n > 2048 {
		t.Errorf("%d questions are kept", n)
	}
	if got := q.answers(message{id: json.RawMessage("9999")}); got.Session != "1" {
		t.Errorf("the answer to the last question takes the share of %+v", got)
	}
	if got := q.answers(message{id: json.RawMessage("9999")}); got != (turns.Owner{}) {
		t.Errorf("a second answer takes the share of %+v", got)
	}
}
