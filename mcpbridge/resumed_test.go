package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// sent is an event as it came.
type sent struct{ id, data string }

// events scans a stream, which fails if it takes too long.
func events(t *testing.T, of *opened) *bufio.Scanner {
	t.Helper()
	late := time.AfterFunc(patience, func() { _ = of.body.Close() })
	t.Cleanup(func() { late.Stop() })
	return of.lines()
}

// nextEvent reads one event; the zero sent at the end of the stream.
func nextEvent(t *testing.T, scan *bufio.Scanner) (e sent) {
	t.Helper()
	for some := false; scan.Scan(); {
		switch line := scan.Text(); {
		case line == "" && some:
			return e
		case strings.HasPrefix(line, "id: "):
			e.id, some = line[4:], true
		case strings.HasPrefix(line, "data: "):
			e.data, some = line[6:], true
		}
	}
	return e
}

// cut is a call of a session whose connection broke after its first event.
type cut struct {
	w       *world
	f       *front
	session string
	first   sent
	answer  chan string // what the tool answers
	more    chan string // what the tool says before
	ran     atomic.Int32
}

// cutCall makes a call, which tells of its progress, and breaks its connection. The settings are those of the front.
func cutCall(t *testing.T, settings httpfront.Settings, headers ...string) *cut {
	t.Helper()
	c := &cut{answer: make(chan string), more: make(chan string)}
	c.w = talking(t, func(ctx context.Context, to peer.Client) (string, error) {
		c.ran.Add(1)
		to.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":1}`))
		for {
			select {
			case said := <-c.answer:
				return said, nil
			case said := <-c.more:
				to.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":2,"message":"`+said+`"}`))
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}
	})
	c.f = c.w.front(t, settings)
	c.session = c.f.initialize(t, headers...)
	res := c.f.open(t, http.MethodPost, "/mcp", strings.NewReader(withToken(`"a/1"`, "1")), append(headers, "Mcp-Session-Id", c.session)...)
	c.first = nextEvent(t, events(t, res))
	if c.first.id == "" || !strings.Contains(c.first.data, `"progress":1`) {
		t.Fatalf("the first event is %v", c.first)
	}
	_ = res.body.Close()
	return c
}

// back comes back after an event.
func (c *cut) back(t *testing.T, event string, headers ...string) *opened {
	t.Helper()
	return c.f.open(t, http.MethodGet, "/mcp", nil, append([]string{"Last-Event-ID", event, "Mcp-Session-Id", c.session}, headers...)...)
}

// SPEC Q2: a client whose connection broke in the middle of a call gets what it missed, and the tool runs once.
func TestQ2AnAnswerAfterABrokenConnection(t *testing.T) {
	for name, late := range map[string]bool{"answered before it comes back": false, "answered after": true} {
		t.Run(name, func(t *testing.T) {
			c := cutCall(t, httpfront.Settings{})
			c.more <- "while it was away"
			if !late {
				c.answer <- "here"
				eventually(t, "the call is over", func() bool { return c.f.Answering() == 0 })
			}
			stream := events(t, c.back(t, c.first.id))
			if e := nextEvent(t, stream); !strings.Contains(e.data, "while it was away") || e.id == "" {
				t.Errorf("the first event is %v", e)
			}
			if late {
				c.answer <- "here"
			}
			last := nextEvent(t, stream)
			if !strings.Contains(last.data, `"here"`) || !strings.Contains(last.data, `"id":"a/1"`) {
				t.Errorf("the answer is %v", last)
			}
			if stream.Scan() {
				t.Errorf("after the answer comes %q", stream.Text())
			}
			if res := c.back(t, last.id); res.status != http.StatusNoContent {
				t.Errorf("after the answer: %d", res.status)
			}
			if n := c.ran.Load(); n != 1 {
				t.Errorf("the tool ran %d times", n)
			}
		})
	}
}

// SPEC Q2: what is held is for the same session and the same caller alone. To others it is as if it was not there.
func TestQ2NobodyElseGetsAnAnswer(t *testing.T) {
	c := cutCall(t, httpfront.Settings{Verify: tokens, Callers: map[string]string{"ann": "1", "bob": "1"}}, bearer("ann")...)
	c.answer <- "secret"
	eventually(t, "the call is over", func() bool { return c.f.Answering() == 0 })
	if res := c.back(t, c.first.id, bearer("bob")...); res.status != http.StatusNotFound {
		t.Errorf("another caller: %d", res.status)
	}
	other := c.f.initialize(t, bearer("ann")...)
	res := c.f.open(t, http.MethodGet, "/mcp", nil, bearer("ann", "Last-Event-ID", c.first.id, "Mcp-Session-Id", other)...)
	if e := nextEvent(t, events(t, res)); strings.Contains(e.data, "secret") || !strings.Contains(e.data, "not held any more") {
		t.Errorf("another session: %v", e)
	}
	if e := nextEvent(t, events(t, c.back(t, c.first.id, bearer("ann")...))); !strings.Contains(e.data, "secret") {
		t.Errorf("the session itself: %v", e)
	}
}

// SPEC Q2: a client that comes back for an answer that is not held, as after a restart, hears so at once.
func TestQ2AnAnswerThatIsNotHeld(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	c := &cut{f: f, session: f.initialize(t)}
	res := c.back(t, "answer.GONE.3.Nw") // of request 7
	if e := nextEvent(t, events(t, res)); !strings.Contains(e.data, `"id":7`) || !strings.Contains(e.data, "-32603") {
		t.Errorf("%d %v", res.status, e)
	}
	for event, status := range map[string]int{"answer.GONE.3.": 204, "answer.GONE.3.e30": 204, "answer.GONE.-3.Nw": 400, "x": 400, "answer.1": 400} {
		if res := c.back(t, event); res.status != status {
			t.Errorf("%s: %d, want %d", event, res.status, status)
		}
	}
}

// SPEC Q2, L1: an answer that is written at once has no id, and neither has what a client without a session gets.
func TestQ2OnlyStreamsOfSessionsAreHeld(t *testing.T) {
	w := talking(t, func(ctx context.Context, to peer.Client) (string, error) {
		to.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":1}`))
		return "here", nil
	})
	f := w.front(t, httpfront.Settings{})
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	for name, r := range map[string]reply{
		"at once":         f.post(t, call(1, "echo"), "Mcp-Session-Id", f.initialize(t)),
		"stateless":       f.post(t, strings.Replace(body, `"_meta":{`, `"_meta":{"progressToken":1,`, 1), headers...),
		"without session": f.post(t, withToken(1, "1")),
	} {
		if strings.Contains(r.raw, "id: ") {
			t.Errorf("%s: %s", name, r.raw)
		}
	}
}

// SPEC Q2: a call that takes its time can be resumed, if its client takes an event without a message.
func TestQ2ALongCallHasAnID(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	w.answer("echo", g.answer)
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) { setLimits(h, time.Minute, time.Minute, time.Millisecond) })
	id := f.initialize(t)
	res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(call(7, "echo")), "Mcp-Session-Id", id)
	e := nextEvent(t, events(t, res))
	if e.id == "" || e.data != "" {
		t.Errorf("the first event is %v", e)
	}
	_ = res.body.Close()
	old := f.post(t, initialize("2025-06-18")).header.Get("Mcp-Session-Id")
	stream := events(t, f.open(t, http.MethodPost, "/mcp", strings.NewReader(call(7, "echo")), "Mcp-Session-Id", old))
	if !stream.Scan() || stream.Text() != ": keep-alive" {
		t.Errorf("the stream of an older client begins with %q", stream.Text())
	}
	close(g.open)
	stream = events(t, (&cut{f: f, session: id}).back(t, e.id))
	if e := nextEvent(t, stream); !strings.Contains(e.data, "let through") {
		t.Errorf("the answer is %v", e)
	}
}

// SPEC Q2: a question to a client that is away waits for it, and its answer goes on with the call.
func TestQ2AQuestionWaitsForTheClient(t *testing.T) {
	ask := make(chan bool)
	w := talking(t, func(ctx context.Context, to peer.Client) (string, error) {
		to.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":1}`))
		<-ask
		got, err := to.Ask(ctx, "roots/list", nil)
		return string(got), err
	})
	f := w.front(t, httpfront.Settings{})
	r := f.post(t, strings.Replace(initialize("2025-11-25"), `"capabilities":{}`, `"capabilities":{"roots":{}}`, 1))
	c := &cut{f: f, session: r.header.Get("Mcp-Session-Id")}
	res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(withToken(1, "1")), "Mcp-Session-Id", c.session)
	e := nextEvent(t, events(t, res))
	_ = res.body.Close()
	ask <- true
	stream := events(t, c.back(t, e.id))
	var question struct{ ID json.RawMessage }
	if e := nextEvent(t, stream); json.Unmarshal([]byte(e.data), &question) != nil || !strings.Contains(e.data, "roots/list") {
		t.Fatalf("the question is %v", e)
	}
	f.post(t, `{"jsonrpc":"2.0","id":`+string(question.ID)+`,"result":{"roots":[]}}`, "Mcp-Session-Id", c.session)
	if e := nextEvent(t, stream); !strings.Contains(e.data, `{\"roots\":[]}`) {
		t.Errorf("the answer is %v", e)
	}
}

// SPEC Q2: a client that comes back twice gets the events on the newest connection only.
func TestQ2TheNewestConnectionGetsTheEvents(t *testing.T) {
	c := cutCall(t, httpfront.Settings{})
	before := events(t, c.back(t, c.first.id))
	c.more <- "first"
	nextEvent(t, before)
	after := events(t, c.back(t, c.first.id))
	nextEvent(t, after)
	if e := nextEvent(t, before); e != (sent{}) {
		t.Errorf("the connection before got %v", e)
	}
	c.answer <- "here"
	if e := nextEvent(t, after); !strings.Contains(e.data, `"here"`) {
		t.Errorf("the answer is %v", e)
	}
}

// SPEC Q2: a session that ends takes the streams of its client with it.
func TestQ2AStreamEndsWithItsSession(t *testing.T) {
	c := cutCall(t, httpfront.Settings{})
	stream := events(t, c.back(t, c.first.id))
	c.f.send(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", c.session)
	for e := nextEvent(t, stream); e != (sent{}); e = nextEvent(t, stream) {
		if !strings.Contains(e.data, `"canceled"`) {
			t.Errorf("an event: %v", e)
		}
	}
	if res := c.back(t, c.first.id); res.status != http.StatusNotFound {
		t.Errorf("afterwards: %d", res.status)
	}
}

// SPEC G3, Q2: the news that a client did not get are told again when it comes back, though its connection before seems to be open.
func TestQ2NewsAreToldAgain(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	c := &cut{f: f, session: f.initialize(t)}
	before := events(t, f.open(t, http.MethodGet, "/mcp", nil, "Mcp-Session-Id", c.session))
	first := nextEvent(t, before)
	w.set(tool("echo"), tool("new"))
	told := nextEvent(t, before)
	if first.data != "" || first.id == "" || !strings.Contains(told.data, "tools/list_changed") || told.id == first.id {
		t.Fatalf("%v, then %v", first, told)
	}
	if res := f.open(t, http.MethodGet, "/mcp", nil, "Mcp-Session-Id", c.session); res.status != http.StatusConflict {
		t.Errorf("a second stream: %d", res.status)
	}
	after := events(t, c.back(t, first.id)) // as if the news had been lost
	if e := nextEvent(t, before); e != (sent{}) {
		t.Errorf("the stream before got %v", e)
	}
	nextEvent(t, after)
	if e := nextEvent(t, after); !strings.Contains(e.data, "tools/list_changed") {
		t.Errorf("news: %v", e)
	}
	unknown := events(t, c.back(t, "news.ANOTHERPROCESS.5"))
	nextEvent(t, unknown)
	for _, list := range []string{"tools", "prompts", "resources"} {
		if e := nextEvent(t, unknown); !strings.Contains(e.data, list+"/list_changed") {
			t.Errorf("after a restart: %v, want the list of %s", e, list)
		}
	}
}

// SPEC Q2: a client that comes back does not wait for its connection before, which takes nothing more.
func TestQ2AConnectionThatTakesNothingIsGivenUp(t *testing.T) {
	var told atomic.Int32
	w := talking(t, func(ctx context.Context, to peer.Client) (string, error) {
		to.Notify(ctx, "notifications/progress", json.RawMessage(`{"progress":1}`))
		large := json.RawMessage(`{"progress":2,"message":"` + strings.Repeat("x", 200<<10) + `"}`)
		for range 400 { // more than the system has room for
			to.Notify(ctx, "notifications/progress", large)
			told.Add(1)
		}
		return "here", nil
	})
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) { setLimits(h, time.Minute, time.Hour, time.Hour) })
	c := &cut{f: f, session: f.initialize(t)}
	res := f.open(t, http.MethodPost, "/mcp", strings.NewReader(withToken(1, "1")), "Mcp-Session-Id", c.session)
	first := nextEvent(t, events(t, res))
	same, before := 0, int32(0)
	eventually(t, "the connection takes nothing more", func() bool {
		if n := told.Load(); n != before || n == 0 {
			same, before = 0, n
		}
		same++
		return same > 20
	})
	stream := events(t, c.back(t, first.id))
	last := sent{}
	for e := nextEvent(t, stream); e != (sent{}); e = nextEvent(t, stream) {
		last = e
	}
	if !strings.Contains(last.data, `"here"`) {
		t.Errorf("the last event is %.200v", last)
	}
}

// SPEC Q2: what is held is bounded, and what a client gets that is back is not. Who comes later hears that it is not held.
func TestQ2AnAnswerThatIsTooLargeToBeHeld(t *testing.T) {
	c := cutCall(t, httpfront.Settings{})
	c.w.bridge.SetMaxInline(16 << 20)
	stream := events(t, c.back(t, c.first.id))
	stream.Buffer(nil, 16<<20)
	c.more <- "you are back"
	if e := nextEvent(t, stream); !strings.Contains(e.data, "you are back") {
		t.Fatalf("the first event is %v", e)
	}
	large := strings.Repeat("y", 9<<20)
	c.answer <- large
	if last := nextEvent(t, stream); !strings.Contains(last.data, large) || !strings.Contains(last.data, `"id":"a/1"`) {
		t.Errorf("the answer has %d bytes: %.200s", len(last.data), last.data)
	}
	eventually(t, "the call is over", func() bool { return c.f.Answering() == 0 })
	if e := nextEvent(t, events(t, c.back(t, c.first.id))); !strings.Contains(e.data, "not held any more") {
		t.Errorf("who comes later gets %.200s", e.data)
	}
}
