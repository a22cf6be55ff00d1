package remote_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// of makes a call of the tool as a session of a caller.
func (l *living) of(ctx context.Context, owner turns.Owner, args string) error {
	_, err := l.Call(ctx, peer.Call{Tool: "far--t", Args: json.RawMessage(args), Owner: owner})
	return err
}

// flood makes so many calls of one caller, each in a session of its own, until the test is
// over. It returns when they are on their way.
func (l *living) flood(n int, args string) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() { _ = l.of(ctx, turns.Owner{Caller: "big", Session: fmt.Sprint(i)}, args) })
	}
	l.t.Cleanup(func() { cancel(); calls.Wait() })
	const most = 4000 // what is more may be refused
	testkit.Eventually(l.t, "the capsule has all calls", func() bool { return l.Life().InFlight >= min(n, most) })
}

// answered fails the test unless another caller's calls are answered.
func (l *living) answered(args string) {
	l.t.Helper()
	for i := range 5 {
		ctx, cancel := context.WithTimeout(l.t.Context(), 10*time.Second)
		err := l.of(ctx, turns.Owner{Caller: "small", Session: "1"}, args)
		cancel()
		if err != nil {
			l.t.Fatalf("call %d of another caller: %v", i, err)
		}
	}
}

// SPEC N2: a caller whose calls a server does not answer has a share of the requests that
// the server works on, and of those that wait for it: another caller's calls are answered.
func TestN2SlowCallsOfOneCallerLeavePlacesToOthers(t *testing.T) {
	for name, n := range map[string]int{"that the server works on": 300, "that wait": 4200} {
		t.Run(name, func(t *testing.T) {
			release := make(chan struct{})
			server := script(t, func(_ http.ResponseWriter, r *http.Request, m asked) bool {
				if string(m.Params.Arguments) != `{"slow":true}` {
					return false
				}
				select {
				case <-release:
				case <-r.Context().Done():
				}
				return false
			})
			l := connect(t, server.URL)
			l.offers(1)
			l.flood(n, `{"slow":true}`)
			t.Cleanup(func() { close(release) })
			l.answered(`{}`)
		})
	}
}

// SPEC N2: a caller whose large answers do not end has a share of those that are read at
// one time: another caller's large answers are read.
func TestN2LargeAnswersToOneCallerLeaveRoomForOthers(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	for name, stream := range map[string]bool{"JSON": false, "a stream": true} {
		t.Run(name, func(t *testing.T) {
			server := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
				if m.Method != "tools/call" {
					return false
				}
				kind, before, after := "application/json", "", ""
				if stream {
					kind, before, after = "text/event-stream", "data: ", "\n\n"
				}
				w.Header().Set("Content-Type", kind)
				_, _ = fmt.Fprintf(w, `%s{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s`, before, m.ID, large)
				if string(m.Params.Arguments) == `{"slow":true}` {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
					return true
				}
				_, _ = fmt.Fprintf(w, `"}]}}%s`, after)
				return true
			})
			l := connect(t, server.URL)
			l.offers(1)
			l.flood(20, `{"slow":true}`)
			l.answered(`{}`)
		})
	}
}

// owned is a client of a caller, which counts what it is asked.
type owned struct {
	teller
	owner turns.Owner
	asked atomic.Int64
}

func (c *owned) Session() string    { return c.owner.Session }
func (c *owned) Owner() turns.Owner { return c.owner }
func (c *owned) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	defer c.asked.Add(1)
	return c.teller.Ask(ctx, method, params)
}

// SPEC N2: a caller whose answers to a server's questions the server does not take has a
// share of those that are told at one time: another caller's answer is told.
func TestN2AnswersOfOneCallerLeavePlacesToOthers(t *testing.T) {
	const questions = 20
	release, heard := make(chan struct{}), make(chan struct{}, 10)
	server := script(t, func(w http.ResponseWriter, r *http.Request, m asked) bool {
		wait := func() {
			select {
			case <-release:
			case <-r.Context().Done():
			}
		}
		const question = `data: {"jsonrpc":"2.0","id":"%s","method":"elicitation/create","params":{}}`
		switch id := string(m.ID); {
		case r.Method != http.MethodPost:
			return false
		case m.Method == "" && strings.HasPrefix(id, `"big`):
			wait()
			return false
		case m.Method == "":
			heard <- struct{}{}
			return false
		case m.Method != "tools/call":
			return false
		}
		send := sse(w)
		if string(m.Params.Arguments) == `{"slow":true}` {
			for i := range questions {
				send(question, fmt.Sprint("big", i))
			}
			wait()
		} else {
			send(question, "small")
			select {
			case <-heard:
			case <-r.Context().Done():
			}
		}
		send(`data: {"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result("called"))
		return true
	})
	l := connect(t, server.URL)
	l.offers(1)
	big := &owned{owner: turns.Owner{Caller: "big", Session: "1"}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var calls sync.WaitGroup
	calls.Go(func() {
		_, _ = l.Call(ctx, peer.Call{Tool: "far--t", Args: json.RawMessage(`{"slow":true}`), Owner: big.owner, Client: big})
	})
	defer calls.Wait()
	defer close(release)
	testkit.Eventually(t, "the first caller is asked", func() bool { return big.asked.Load() == questions })
	small := &owned{owner: turns.Owner{Caller: "small", Session: "2"}}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := l.Call(soon, peer.Call{Tool: "far--t", Args: json.RawMessage(`{}`), Owner: small.owner, Client: small}); err != nil {
		t.Errorf("the other caller's call: %v", err)
	}
}
