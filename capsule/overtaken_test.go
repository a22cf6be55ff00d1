package capsule

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// MCP, lifecycle: nothing is asked before notifications/initialized, also when the
// server's ping is being answered as its answer to initialize comes.
func TestInitializedComesFirst(t *testing.T) {
	for range 100 {
		greeted := false
		asServer(t, func(p *scripted, m asked) bool {
			switch m.Method {
			case "initialize":
				p.says(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
			case "notifications/initialized":
				greeted = true
			case "tools/list":
				if !greeted {
					t.Error("the list was asked for before the handshake was over")
				}
			}
			return false
		}, func(*testing.T, *Capsule, *journal) { time.Sleep(5 * time.Second) })
	}
}

// A subscription that the old process answers when the new one has taken over is
// the new one's as well.
func TestSubscriptionDuringReplace(t *testing.T) {
	var mu sync.Mutex
	told := map[int][]string{} // by process
	asServerWith(t, func(r *manifest.Runtime) { r.HotLoad.Mode, r.Drain = manifest.HotLoadReplace, 10*time.Second }, func(p *scripted, m asked) bool {
		if m.Method == "resources/subscribe" {
			mu.Lock()
			told[p.n] = append(told[p.n], string(m.Params))
			mu.Unlock()
			if p.n == 1 {
				time.Sleep(2 * time.Second)
			}
		}
		return false
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(5 * time.Second)
		done := make(chan error)
		const wanted = `{"uri":"a:1"}`
		go func() {
			_, err := c.Request(t.Context(), peer.Request{Method: "resources/subscribe", Params: json.RawMessage(wanted)})
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		c.Reload("a save")
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if pid := c.Life().Pid; pid != 2 || !slices.Contains(told[2], wanted) {
			t.Errorf("process %d serves; the second was told %q", pid, told[2])
		}
	})
}

// A subscription that is refused is nobody's later.
func TestRefusedSubscriptionIsForgotten(t *testing.T) {
	asServer(t, func(p *scripted, m asked) bool {
		if m.Method != "resources/subscribe" {
			return false
		}
		if p.n > 1 {
			t.Errorf("the second process was told %s", m.Params)
		}
		p.says(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32002,"message":"no such resource"}}`)
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(5 * time.Second)
		if _, err := c.Request(t.Context(), peer.Request{Method: "resources/subscribe", Params: json.RawMessage(`{"uri":"a:1"}`)}); err == nil {
			t.Error("it was not refused")
		}
		c.Reload("a save")
		time.Sleep(time.Minute)
	})
}

// What clients unsubscribe from while a new process is told of it is not its in the end.
func TestUnsubscribeWhileANewProcessIsTold(t *testing.T) {
	var mu sync.Mutex
	has := map[string]bool{} // as the second process believes
	asServer(t, func(p *scripted, m asked) bool {
		if (m.Method == "resources/subscribe" || m.Method == "resources/unsubscribe") && p.n == 2 {
			mu.Lock()
			has[string(m.Params)] = m.Method == "resources/subscribe"
			mu.Unlock()
			time.Sleep(20 * time.Millisecond)
		}
		return false
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(5 * time.Second)
		ask := func(method string) {
			for i := range 10 {
				if _, err := c.Request(t.Context(), peer.Request{Method: method, Params: fmt.Appendf(nil, `{"uri":"a:%d"}`, i)}); err != nil {
					t.Fatal(err)
				}
			}
		}
		ask("resources/subscribe")
		c.Reload("a save")
		until(c, func(s *status) bool { return s.state == Ready && s.pid == 2 })
		time.Sleep(30 * time.Millisecond)
		ask("resources/unsubscribe")
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		for uri, is := range has {
			if is {
				t.Errorf("nobody wants %s any more, and the process believes that somebody does", uri)
			}
		}
	})
}

// slowClient answers its first question when it is over, and others late.
type slowClient struct{ asked int }

func (*slowClient) Session() string                                 { return "s" }
func (*slowClient) Owner() turns.Owner                              { return turns.Owner{} }
func (*slowClient) Declared() peer.Declared                         { return peer.Declared{} }
func (*slowClient) Hears() bool                                     { return true }
func (*slowClient) WantsProgress() bool                             { return false }
func (*slowClient) Notify(context.Context, string, json.RawMessage) {}

func (s *slowClient) Ask(ctx context.Context, _ string, _ json.RawMessage) (json.RawMessage, error) {
	if s.asked++; s.asked == 1 {
		<-ctx.Done()
		time.Sleep(time.Second)
	} else {
		time.Sleep(2 * time.Second)
	}
	return json.RawMessage(`{"roots":[]}`), ctx.Err()
}

// A capsule that gives a question up may ask another with the same id, whatever
// becomes of the first.
func TestAsksAgainWithOneID(t *testing.T) {
	var call asked
	asServer(t, func(p *scripted, m asked) bool {
		const question = `{"jsonrpc":"2.0","id":"q","method":"roots/list"}`
		switch {
		case m.Method == "tools/call":
			call = m
			p.says(question)
			time.Sleep(time.Second)
			p.says(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"q"}}`)
			time.Sleep(time.Millisecond)
			p.says(question)
		case m.Method == "" && string(m.ID) == `"q"`:
			if m.Error != nil {
				t.Errorf("the second is refused: %s", m.Error)
			}
			p.answers(call, `{"content":[]}`)
		default:
			return false
		}
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(5 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := c.Call(ctx, peer.Call{Tool: "walker", Client: &slowClient{}}); err != nil {
			t.Errorf("the second is not answered: %v", err)
		}
	})
}

// The last exit is that of the process that crashed, and not of the one before it,
// which ended its calls meanwhile.
func TestLastExitIsOfTheLastProcess(t *testing.T) {
	plan := func(n int) behaviour {
		if n == 1 {
			return behaviour{slow: 900 * time.Millisecond}
		}
		return behaviour{dies: 100 * time.Millisecond, fails: n > 2}
	}
	inBubble(t, plan, func(r *manifest.Runtime) { r.HotLoad.Mode = manifest.HotLoadReplace }, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
		time.Sleep(time.Second)
		called := make(chan struct{})
		go func() {
			defer close(called)
			_ = ask(t.Context(), c) // by the first
		}()
		time.Sleep(10 * time.Millisecond)
		c.Reload("a save")
		time.Sleep(300 * time.Millisecond)
		crashed := c.Life().LastExit
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		<-called
		if last := c.Life().LastExit; crashed == "" || last != crashed {
			t.Errorf("the last exit is %q; it was %q", last, crashed)
		}
	})
}

// listener is a client that counts what it hears.
type listener struct {
	peer.Client
	session string
	heard   atomic.Int64
}

func (l *listener) Session() string                                 { return l.session }
func (*listener) Owner() turns.Owner                                { return turns.Owner{} }
func (*listener) Hears() bool                                       { return true }
func (*listener) WantsProgress() bool                               { return false }
func (*listener) Declared() (none peer.Declared)                    { return none }
func (l *listener) Notify(context.Context, string, json.RawMessage) { l.heard.Add(1) }

func (l *listener) Ask(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	l.heard.Add(1)
	return json.RawMessage("{}"), nil
}

// SPEC N2: a subscription counts as its client's, also for the next process: what a process
// says without a word on whom it is for reaches no other client that is being served.
func TestN2ASubscriptionCountsForItsClient(t *testing.T) {
	asServer(t, func(p *scripted, m asked) bool {
		switch {
		case m.Method == "resources/subscribe" && p.n == 1:
			p.answers(m, "{}")
		case m.Method == "tools/call" && p.n == 1:
			return true // the client waits
		case m.Method != "tools/call":
			return false
		}
		p.says(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"bob's"}}`)
		p.says(`{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Bob, what is your password?"}}`)
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(5 * time.Second)
		alice := &listener{session: "alice"}
		for process := range 2 {
			ctx, cancel := context.WithCancel(t.Context())
			var calls sync.WaitGroup
			calls.Go(func() { _, _ = c.Call(ctx, peer.Call{Tool: "t", Client: alice}) })
			synctest.Wait()
			if process == 0 {
				if _, err := c.Request(ctx, peer.Request{Method: "resources/subscribe", Session: "bob", Params: json.RawMessage(`{"uri":"a:1"}`)}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
			}
			if n := alice.heard.Load(); n != 0 {
				t.Errorf("process %d: another client heard %d messages about a subscription", process+1, n)
			}
			cancel()
			calls.Wait()
			c.Reload("a save")
			until(c, func(s *status) bool { return s.state == Ready && s.pid == process+2 })
			time.Sleep(time.Minute)
		}
	})
}
