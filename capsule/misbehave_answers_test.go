package capsule_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/manifest"
)

// SPEC D5: a flood of messages drowns no answer, and no stop.
func TestFloodsStdout(t *testing.T) {
	for _, what := range []string{"notifications", "junk"} {
		t.Run(what, func(t *testing.T) {
			l := live(t, "floods-stdout", capsuletest.Set("WHAT", what))
			first := l.call(capsuletest.Args{})
			if second := l.call(capsuletest.Args{}); second.Pid != first.Pid {
				t.Errorf("process %d answered after %d", second.Pid, first.Pid)
			}
			if n := l.log.count("tide tide"); n > 100 {
				t.Errorf("%d lines of the flood are in the log", n)
			}
			l.stop()
		})
	}
}

// SPEC D5: answers that a capsule asks for and does not read cost no memory
// without a bound.
func TestAsksWithoutAnEndAndReadsNothing(t *testing.T) {
	l := live(t, "floods-stdout", capsuletest.Set("WHAT", "requests"))
	l.await("READY")
	before := runtime.NumGoroutine()
	flood, look := time.After(time.Second), time.NewTicker(10*time.Millisecond)
	defer look.Stop()
	// The fewest of the last looks: goroutines that have ended count too while the collector frees their stacks.
	var last []int
	for over := false; !over || len(last) < 2; {
		select {
		case <-flood:
			over = true
		case <-look.C:
			last = append(last, runtime.NumGoroutine())
		}
	}
	if fewest := slices.Min(last[len(last)/2:]); fewest > before+1000 {
		t.Errorf("there are %d goroutines more than before", fewest-before)
	}
	l.stop()
}

// SPEC D4, D5: it is not a hello either.
func TestFloodsStdoutWithoutAHello(t *testing.T) {
	l := live(t, "floods-stdout", startsOnce, capsuletest.Set("WHAT", "junk"), capsuletest.Set("WHEN", "start"), startupTimeout(300*time.Millisecond))
	l.await("STOPPED")
	if reason := l.Life().Reason; !strings.Contains(reason, "orla.hello") {
		t.Errorf("the reason is %q, want orla.hello in it", reason)
	}
}

// SPEC D5: a line without an end costs no more memory than a message may have.
func TestPrintsALineWithoutAnEnd(t *testing.T) {
	for _, when := range []string{"start", "call"} {
		t.Run(when, func(t *testing.T) {
			startup := 500 * time.Millisecond
			if when == "call" { // it has to come up
				startup = patience
			}
			l := live(t, "junk-endless", startsOnce, capsuletest.Set("WHEN", when), startupTimeout(startup), callTimeout(500*time.Millisecond))
			if when == "start" {
				l.await("STOPPED")
			} else {
				l.await("READY")
				_, err := l.ask(capsuletest.Args{})
				wantFault(t, err, fault.Timeout)
			}
			var mem runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&mem)
			if mem.HeapAlloc > 64<<20 {
				t.Errorf("the heap has %d MiB", mem.HeapAlloc>>20)
			}
			l.stop()
		})
	}
}

// SPEC D5: a flood on stderr blocks neither side.
func TestFloodsStderr(t *testing.T) {
	for _, lines := range []string{"yes", "no"} {
		t.Run("lines "+lines, func(t *testing.T) {
			l := live(t, "floods-stderr", capsuletest.Set("LINES", lines))
			first := l.call(capsuletest.Args{})
			if second := l.call(capsuletest.Args{}); second.Pid != first.Pid {
				t.Errorf("process %d answered after %d", second.Pid, first.Pid)
			}
			l.stop()
		})
	}
}

// SPEC D5: older peers answer in batches.
func TestAnswersInABatch(t *testing.T) {
	l := live(t, "batch", capsuletest.SetInt("N", 5))
	var calls []<-chan error
	for range 5 {
		calls = append(calls, l.asking(capsuletest.Args{}))
	}
	for _, done := range calls {
		if err := within(t, "a call of the batch", done); err != nil {
			t.Error(err)
		}
	}
}

// SPEC D7: a CallToolResult passes through whole; any other JSON is the text.
func TestAnswersWithWhateverJSON(t *testing.T) {
	l := live(t, "echo")
	for result, want := range map[string]string{
		`"bare"`:                        "bare",
		`""`:                            "",
		`42`:                            "42",
		`12345678901234567890123`:       "12345678901234567890123",
		`null`:                          "null",
		`true`:                          "true",
		`[1,2]`:                         "[1,2]",
		`{}`:                            "{}",
		`{"answer":42}`:                 `{"answer":42}`,
		`{"content":"no list"}`:         `{"content":"no list"}`,
		`{"content":[42]}`:              `{"content":[42]}`,
		`{"content":null}`:              `{"content":null}`,
		`{"content":[{"type":"text"}]}`: "",
		`{"content":[{"type":"text","text":"whole"}]}`: "whole",
	} {
		res, err := l.ask(capsuletest.Args{Result: json.RawMessage(result)})
		if err != nil {
			t.Errorf("%s: %v", result, err)
			continue
		}
		if got := textOf(t, res); got != want || res.IsError {
			t.Errorf("%s: got the text %q, isError %t, want %q", result, got, res.IsError, want)
		}
	}
	const whole = `{"content":[{"type":"image","data":"AAEC","mimeType":"image/png"},{"type":"resource_link","uri":"test://x","name":"x"}],"isError":true,"structuredContent":{"n":12345678901234567890},"_meta":{"k":1}}`
	raw, err := l.raw(t.Context(), peer.Call{Tool: l.tool.Name, Args: capsuletest.Args{Result: json.RawMessage(whole)}.JSON()})
	if err != nil || string(raw) != whole {
		t.Errorf("got %s, %v, want it whole", raw, err)
	}
	res, err := l.ask(capsuletest.Args{Result: json.RawMessage(whole)})
	if err != nil || !res.IsError || len(res.Content) != 2 || res.StructuredContent == nil {
		t.Errorf("got %+v, %v, want an image, a link and structured content", res, err)
	}
}

// SPEC C3, G5b: bytes that are not text never become broken JSON.
func TestAnswersWithBytesThatAreNoText(t *testing.T) {
	for _, result := range []string{`{"content":[{"type":"text","text":"a?b"}]}`, `"a?b"`, `{"a?b":1}`} {
		result = strings.ReplaceAll(result, "?", "\xff\xfe")
		l := live(t, "nonsense-calls", capsuletest.Set("ANSWER", `{"jsonrpc":"2.0","id":$ID,"result":`+result+`}`))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		raw, err := l.raw(ctx, peer.Call{Tool: l.tool.Name})
		cancel()
		if err != nil || !utf8.Valid(raw) {
			t.Errorf("%q reached the client as %q, %v", result, raw, err)
		}
	}
}

// SPEC D6, G5: a JSON-RPC error is the call's, and says what the capsule said.
func TestAnswersWithAnError(t *testing.T) {
	l := live(t, "echo")
	for _, c := range []struct{ raw, words string }{
		{`{"code":-32000,"message":"no weather today"}`, "no weather today"},
		{`{"code":7,"message":"with data","data":{"a":[1]}}`, "with data"},
		{`{"message":"no code"}`, "no code"},
		{`"only text"`, "only text"},
		{`{}`, ""},
		{`42`, "42"},
	} {
		res, err := l.ask(capsuletest.Args{Error: json.RawMessage(c.raw)})
		switch {
		case err != nil:
			wantFault(t, err, fault.ExecutionFailed, c.words)
		case !res.IsError || !strings.Contains(textOf(t, res), c.words):
			t.Errorf("%s: got %+v, want an error with %q", c.raw, res, c.words)
		}
	}
	if l.Life().Restarts != 0 {
		t.Error("it was started again")
	}
}

// SPEC D5, D6: an answer that is none leaves its call to its deadline.
func TestAnswersWithNonsense(t *testing.T) {
	for _, answer := range []string{`{"jsonrpc":"2.0","id":$ID}`, `{"id":"$ID","result":{}}`, `{"jsonrpc":"2.0","result":{}}`, `$ID`, `{"jsonrpc":"2.0","id":$ID,"result":`} {
		t.Run(answer, func(t *testing.T) {
			t.Parallel() // a deadline takes its time
			l := live(t, "nonsense-calls", capsuletest.Set("ANSWER", answer), callTimeout(200*time.Millisecond))
			l.await("READY")
			_, err := l.ask(capsuletest.Args{})
			wantFault(t, err, fault.Timeout, "200ms")
			if l.Life().State != "READY" {
				t.Errorf("it is %s", l.Life().State)
			}
		})
	}
}

// SPEC D6: a call that is cancelled is told to the capsule, and its late answer
// is nobody's.
func TestAnswersACancelledCallLate(t *testing.T) {
	l := live(t, "echo")
	l.await("READY")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := l.result(ctx, l.tool.Name, capsuletest.Args{Hold: "it", Late: true}.JSON())
		done <- err
	}()
	// One that is cancelled before it was sent is not told.
	eventually(t, "the capsule has heard it", func() bool { return l.call(capsuletest.Args{}).InFlight == 2 })
	cancel()
	wantFault(t, within(t, "the cancelled call", done), fault.Canceled)
	eventually(t, "the capsule knows, and has answered", func() bool {
		got := l.call(capsuletest.Args{Text: "mine"})
		if got.Text != "mine" {
			t.Fatalf("a call got the answer of %q", got.Text)
		}
		return got.Cancelled == 1 && got.InFlight == 1
	})
}

// SPEC D6: a timeout is told as well, and answers at the deadline.
func TestNeverAnswersACall(t *testing.T) {
	l := live(t, "echo")
	l.await("READY")
	ctx, end := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := l.result(ctx, l.tool.Name, capsuletest.Args{Hold: "for ever"}.JSON())
		done <- err
	}()
	// One whose time is over before it was sent is not told.
	eventually(t, "the capsule has heard it", func() bool { return l.call(capsuletest.Args{}).InFlight == 2 })
	end(fault.New(fault.Timeout, "no answer within its time"))
	wantFault(t, within(t, "the call", done), fault.Timeout, "no answer within its time")
	if got := l.call(capsuletest.Args{}); got.Cancelled != 1 {
		t.Errorf("the capsule was told of %d timeouts, want 1", got.Cancelled)
	}
}

// client is whoever makes a request, in the eyes of a capsule.
type client struct {
	session string
	reply   json.RawMessage
	fails   error
	wants   bool
	says    peer.Declared

	mu    sync.Mutex // guards what follows
	notes []string
	asked []string
}

func (c *client) Session() string         { return cmp.Or(c.session, "some client") }
func (c *client) Owner() turns.Owner      { return turns.Owner{} }
func (*client) Hears() bool               { return true }
func (c *client) WantsProgress() bool     { return c.wants }
func (c *client) Declared() peer.Declared { return c.says }

func (c *client) Notify(_ context.Context, method string, params json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, method+" "+string(params))
}

func (c *client) Ask(_ context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, method+" "+string(params))
	return c.reply, c.fails
}

func (l *living) askFor(c peer.Client, args capsuletest.Args) capsuletest.Answer {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	raw, err := l.raw(ctx, peer.Call{Tool: l.tool.Name, Args: args.JSON(), Client: c})
	if err != nil {
		l.t.Fatal(err)
	}
	var res mcp.CallToolResult
	if err := json.Unmarshal(raw, &res); err != nil {
		l.t.Fatalf("%v: %s", err, raw)
	}
	return capsuletest.Read(l.t, textOf(l.t, &res))
}

// SPEC D6, D8: what it asks of the client in the middle of a call reaches the
// client, and the answer comes back.
func TestAsksTheClient(t *testing.T) {
	l := live(t, "echo")
	for _, method := range []string{"sampling/createMessage", "elicitation/create", "roots/list"} {
		c := &client{reply: json.RawMessage(`{"said":"yes"}`)}
		got := l.askFor(c, capsuletest.Args{Ask: &capsuletest.Notice{Method: method, Params: json.RawMessage(`{"a":1}`)}})
		if !strings.Contains(string(got.Client), `{"said":"yes"}`) {
			t.Errorf("%s: the capsule got %s", method, got.Client)
		}
		if !slices.Equal(c.asked, []string{method + ` {"a":1}`}) {
			t.Errorf("%s: the client was asked %q", method, c.asked)
		}
	}
	c := &client{fails: &jsonrpc.Error{Code: -1, Message: "user said no"}}
	got := l.askFor(c, capsuletest.Args{Ask: &capsuletest.Notice{Method: "elicitation/create"}})
	if !strings.Contains(string(got.Client), "user said no") {
		t.Errorf("the capsule got %s", got.Client)
	}
	got = l.askFor(nil, capsuletest.Args{Ask: &capsuletest.Notice{Method: "roots/list"}})
	if !strings.Contains(string(got.Client), `"code"`) {
		t.Errorf("without a client the capsule got %s, want an error", got.Client)
	}
	got = l.askFor(&client{}, capsuletest.Args{Ask: &capsuletest.Notice{Method: "no/such"}})
	if !strings.Contains(string(got.Client), "-32601") {
		t.Errorf("a method that no client has got %s, want -32601", got.Client)
	}
}

// SPEC D6, G5b: progress and log messages reach the client that asked, in order
// and before the answer.
func TestTalksWhileItAnswers(t *testing.T) {
	l := live(t, "echo")
	c, other := &client{wants: true}, &client{wants: true}
	done := make(chan capsuletest.Answer, 1)
	go func() { done <- l.askFor(other, capsuletest.Args{Hold: "other"}) }()
	l.inFlight()
	l.askFor(c, capsuletest.Args{Progress: 3, Release: "other"})
	<-done
	if len(c.notes) != 3 {
		t.Fatalf("the client got %q, want 3 notes", c.notes)
	}
	for i, note := range c.notes {
		if !strings.Contains(note, "notifications/progress") || !strings.Contains(note, fmt.Sprintf(`"progress":%d`, i+1)) {
			t.Errorf("note %d is %s", i, note)
		}
	}
	if len(other.notes) != 0 {
		t.Errorf("the other client got %q", other.notes)
	}

	c = &client{}
	l.askFor(c, capsuletest.Args{Notify: []capsuletest.Notice{{Method: "notifications/message", Params: json.RawMessage(`{"level":"info","data":"well"}`)}}})
	if len(c.notes) != 1 || !strings.Contains(c.notes[0], `"data":"well"`) {
		t.Errorf("the client got %q, want the log message", c.notes)
	}
}

// SPEC D6, D8: of several clients that of the call that is named is meant, and none
// when there is no such call.
func TestSaysWhichCallItIsAbout(t *testing.T) {
	l := live(t, "echo")
	c, other := &client{session: "a", reply: json.RawMessage(`{"said":"yes"}`)}, &client{session: "b"}
	done := make(chan capsuletest.Answer, 1)
	go func() { done <- l.askFor(other, capsuletest.Args{Hold: "other"}) }()
	l.inFlight()
	roots, message := &capsuletest.Notice{Method: "roots/list"}, capsuletest.Notice{Method: "notifications/message"}
	got := l.askFor(c, capsuletest.Args{Ask: roots})
	if !strings.Contains(string(got.Client), "several clients") {
		t.Errorf("the capsule, which names no call, got %s", got.Client)
	}
	got = l.askFor(c, capsuletest.Args{Ask: roots, Notify: []capsuletest.Notice{message}, Named: true})
	if !strings.Contains(string(got.Client), `{"said":"yes"}`) || len(c.asked) != 1 || len(c.notes) != 1 {
		t.Errorf("the capsule got %s; its client was asked %q and told %q", got.Client, c.asked, c.notes)
	}
	roots.Params = json.RawMessage(`{"_meta":{"orla/call":123456}}`)
	got = l.askFor(c, capsuletest.Args{Ask: roots, Release: "other"})
	if !strings.Contains(string(got.Client), "not one that a client waits for") {
		t.Errorf("the capsule, which names a call that is none, got %s", got.Client)
	}
	<-done
	if len(other.asked)+len(other.notes) != 0 || len(c.asked) != 1 {
		t.Errorf("the other client was asked %q and told %q", other.asked, other.notes)
	}
}

// SPEC D12: a capsule that does not answer pings is not well.
func TestDoesNotAnswerPings(t *testing.T) {
	health := func(timeout time.Duration) func(*manifest.Tool) {
		return func(tool *manifest.Tool) {
			tool.Runtime.Health = &manifest.Health{Interval: 10 * time.Millisecond, Timeout: timeout, Failures: 2}
		}
	}
	l := live(t, "no-ping", health(500*time.Millisecond))
	l.logged(`"from":"READY"`, `"to":"CRASHED"`, "ping")
	eventually(t, "it is started again", func() bool { return l.Life().Restarts > 0 })

	well := live(t, "echo", health(patience))
	first := well.call(capsuletest.Args{SleepMS: 100})
	if second := well.call(capsuletest.Args{}); second.Pid != first.Pid {
		t.Errorf("process %d answered after %d, which was well", second.Pid, first.Pid)
	}
}
