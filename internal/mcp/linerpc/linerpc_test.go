package linerpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// heard is a Handler that remembers what it is told.
type heard struct {
	mu       sync.Mutex // guards events
	events   []string
	notified func(method string, params json.RawMessage) // may be nil
}

func (h *heard) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, fmt.Sprintf(format, args...))
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.events...)
}

func (h *heard) Notified(method string, params json.RawMessage) {
	if h.notified != nil {
		h.notified(method, params)
		return
	}
	h.add("notified %s %s", method, params)
}

func (h *heard) Asked(id json.RawMessage, method string, params json.RawMessage) {
	h.add("asked %s %s %s", id, method, params)
}
func (h *heard) Unclaimed(id json.RawMessage)  { h.add("unclaimed %s", id) }
func (h *heard) Noise(line []byte, why string) { h.add("noise %s: %s", why, line) }

// process is the other side of a Conn, over pipes made of memory.
type process struct {
	*Conn
	t     *testing.T
	heard *heard
	lines *bufio.Reader // what it is sent
	out   net.Conn      // what it says

	theirIn net.Conn // its end of what it is sent
}

const stall = 10 * time.Second

// As internal/mcp/rpc has them: how many notes of a call may wait, and how many bytes of them.
const (
	maxNotes     = 64
	maxNoteBytes = 1 << 20
)

// inBubble runs a test with a Conn whose process the test plays. That no
// goroutine of the Conn is left, the end of the bubble checks.
func inBubble(t *testing.T, test func(t *testing.T, p *process)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		in, theirIn := net.Pipe()
		out, theirOut := net.Pipe()
		p := &process{t: t, heard: &heard{}, lines: bufio.NewReaderSize(theirIn, 16), out: theirOut, theirIn: theirIn}
		p.Conn = New(in, out, Options{MaxMessage: 16 << 20, Stall: stall, Options: rpc.Options{Handler: p.heard}})
		served := make(chan struct{})
		go func() {
			defer close(served)
			if err := p.Serve(); !errors.Is(err, io.EOF) {
				t.Errorf("Serve gave %v", err)
			}
		}()
		test(t, p)
		p.Close(errors.New("the test is over"))
		_ = theirOut.Close()
		_ = theirIn.Close()
		<-served
	})
}

// readsMuch lets a process that has read nothing yet read many bytes at a time: many megabytes take long otherwise.
func (p *process) readsMuch() { p.lines = bufio.NewReaderSize(p.theirIn, 64<<10) }

// gets returns the next line that the process is sent.
func (p *process) gets() (m struct {
	ID     int64
	Method string
	Params json.RawMessage
},
) {
	p.t.Helper()
	line, err := p.lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil {
		p.t.Fatalf("the process reads %.200q: %v", line, err)
	}
	return m
}

func (p *process) says(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.out, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *process) answers(id int64) { p.says(`{"jsonrpc":"2.0","id":%d,"result":%d}`, id, id) }

// outcome is what a Call gave.
type outcome struct {
	result json.RawMessage
	err    error
}

// calls makes a call in a goroutine.
func (p *process) calls(ctx context.Context, req rpc.Request) <-chan outcome {
	done := make(chan outcome, 1)
	if req.Method == "" {
		req.Method = "work"
	}
	go func() {
		result, err := p.Call(ctx, req)
		done <- outcome{result, err}
	}()
	return done
}

// sized gives params of so many bytes.
func sized(n int) func(int64) [][]byte {
	return func(int64) [][]byte { return [][]byte{[]byte(`"` + strings.Repeat("x", n-2) + `"`)} }
}

// SPEC D6: calls are answered in any order.
func TestAnswersInAnyOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		const n = 50
		var ids []int64
		var calls sync.WaitGroup
		for range n {
			calls.Go(func() {
				var own int64
				result, err := p.Call(t.Context(), rpc.Request{Method: "work", Params: func(id int64) [][]byte {
					own = id
					return [][]byte{[]byte(`{"n":`), fmt.Append(nil, id), []byte(`}`)}
				}})
				if err != nil || string(result) != fmt.Sprint(own) {
					t.Errorf("call %d gave %s, %v", own, result, err)
				}
			})
		}
		for range n {
			m := p.gets()
			if m.Method != "work" || string(m.Params) != fmt.Sprintf(`{"n":%d}`, m.ID) {
				t.Errorf("the process was sent %+v", m)
			}
			ids = append(ids, m.ID)
		}
		if p.InFlight() != n {
			t.Errorf("%d calls are in flight, want %d", p.InFlight(), n)
		}
		for i := range ids {
			p.answers(ids[n-1-i])
		}
		calls.Wait()
		if p.InFlight() != 0 || len(p.heard.all()) > 0 {
			t.Errorf("%d are in flight; heard %q", p.InFlight(), p.heard.all())
		}
	})
}

// SPEC D6: what a process says of a call comes before its answer, in order; a
// client that is slow costs no more than a bounded number of notes and bytes.
func TestNotesComeBeforeTheAnswer(t *testing.T) {
	for _, test := range []struct {
		name        string
		sent, bytes int // of the notes after the first, which the client holds
		want        int
	}{
		{"few", 10, 10, 10},
		{"many", 200, 10, maxNotes},
		{"large", 10, 300 << 10, 3},
		{"one over", 1, maxNoteBytes + 1, 0},
		{"one that just fits", 1, maxNoteBytes, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, p *process) {
				p.heard.notified = func(method string, params json.RawMessage) {
					if !p.Note(1, method, params) {
						t.Errorf("the call is not in flight")
					}
				}
				var got []string
				release := make(chan struct{})
				done := p.calls(t.Context(), rpc.Request{Note: func(method string, params json.RawMessage) {
					<-release
					got = append(got, method)
				}})
				p.gets()
				p.says(`{"jsonrpc":"2.0","method":"n0"}`)
				synctest.Wait() // the client holds it
				for i := range test.sent {
					p.says(`{"jsonrpc":"2.0","method":"n%d","params":"%s"}`, i+1, strings.Repeat("x", test.bytes-2))
				}
				p.answers(1)
				synctest.Wait()
				close(release)
				if o := <-done; o.err != nil || string(o.result) != "1" {
					t.Errorf("the call gave %s, %v", o.result, o.err)
				}
				for i, method := range got {
					if method != fmt.Sprint("n", i) {
						t.Errorf("note %d is %s", i, method)
					}
				}
				if len(got) != 1+test.want {
					t.Errorf("%d notes came, want %d", len(got), 1+test.want)
				}
			})
		})
	}
}

// The place that notes leave is free again when they have been taken.
func TestNotesGiveTheirPlaceBack(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		p.heard.notified = func(method string, params json.RawMessage) { p.Note(1, method, params) }
		n := 0
		done := p.calls(t.Context(), rpc.Request{Note: func(string, json.RawMessage) { n++ }})
		p.gets()
		const most = 10
		for range most {
			p.says(`{"jsonrpc":"2.0","method":"n","params":"%s"}`, strings.Repeat("x", maxNoteBytes/2))
			synctest.Wait()
		}
		p.answers(1)
		if <-done; n != most {
			t.Errorf("%d notes of %d came to a client that is fast", n, most)
		}
		if p.Note(1, "late", nil) || p.About(1) != nil {
			t.Error("a call that is over takes notes")
		}
	})
}

// SPEC N2: the newest request of the only client is found, and none once there were two.
func TestN2TheSoleClientIsFound(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		sole := func(id int64, about any, shared bool) {
			t.Helper()
			if gotID, got, gotShared := p.Sole(); gotID != id || got != about || gotShared != shared {
				t.Errorf("the sole client has %d, %v, %t, want %d, %v, %t", gotID, got, gotShared, id, about, shared)
			}
		}
		sole(0, nil, false)
		first := p.calls(t.Context(), rpc.Request{Client: "a", About: "first"})
		p.gets()
		second := p.calls(t.Context(), rpc.Request{Client: "a", About: "second"})
		p.gets()
		own := p.calls(t.Context(), rpc.Request{Own: true})
		p.gets()
		sole(2, "second", false)
		if p.About(1) != "first" || p.About(4) != nil {
			t.Errorf("the first is %v", p.About(1))
		}
		for id, done := range []<-chan outcome{first, second, own} {
			p.Note(int64(id+1), "who takes none", nil) // it must not take the place of the answer
			p.answers(int64(id + 1))
			if o := <-done; o.err != nil {
				t.Error(o.err)
			}
		}
		sole(0, nil, false)
		other := p.calls(t.Context(), rpc.Request{Client: "b", About: "other"})
		p.gets()
		sole(0, nil, true)
		p.answers(4)
		<-other
		last := p.calls(t.Context(), rpc.Request{Client: "b"})
		p.gets()
		sole(0, nil, true)
		p.answers(5)
		<-last
	})
}

// SPEC D6: a caller that leaves is told to the process, and a late answer is dropped.
func TestCancelIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New(`the "client" left`)
		done := p.calls(ctx, rpc.Request{})
		p.gets()
		cancel(why)
		if o := <-done; !errors.Is(o.err, why) {
			t.Errorf("the call gave %v", o.err)
		}
		m := p.gets()
		if m.Method != "notifications/cancelled" || string(m.Params) != `{"requestId":1,"reason":"the \"client\" left"}` {
			t.Errorf("the process was told %s %s", m.Method, m.Params)
		}
		p.answers(1)
		other := p.calls(t.Context(), rpc.Request{})
		p.gets()
		p.answers(2)
		if o := <-other; o.err != nil || string(o.result) != "2" {
			t.Errorf("the next call gave %s, %v", o.result, o.err)
		}
		if got := p.heard.all(); len(got) != 1 || got[0] != "unclaimed 1" {
			t.Errorf("heard %q", got)
		}
	})
}

// What a process asks is answered, in the words of its id.
func TestReply(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		for _, test := range []struct {
			reply func()
			want  string
		}{
			{func() { p.Reply(turns.Owner{}, json.RawMessage(`"a"`), json.RawMessage("{\n \"x\": 1 }"), nil) }, `{"jsonrpc":"2.0","id":"a","result":{"x":1}}`},
			{func() {
				p.Reply(turns.Owner{}, json.RawMessage(`1.0`), nil, &jsonrpc.Error{Code: -32601, Message: "no"})
			}, `{"jsonrpc":"2.0","id":1.0,"error":{"code":-32601,"message":"no"}}`},
			{func() {
				p.Reply(turns.Owner{}, json.RawMessage(`2`), nil, &jsonrpc.Error{Code: 1, Message: "bad data", Data: json.RawMessage(`{`)})
			}, `{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"bad data"}}`},
			{func() { p.Post(turns.Owner{}, "notifications/x", nil) }, `{"jsonrpc":"2.0","method":"notifications/x"}`},
			{func() { p.Post(turns.Owner{}, "notifications/x", json.RawMessage(`[]`)) }, `{"jsonrpc":"2.0","method":"notifications/x","params":[]}`},
		} {
			test.reply()
			line, err := p.lines.ReadString('\n')
			if err != nil || line != test.want+"\n" {
				t.Errorf("the process reads %q, %v; want %s", line, err, test.want)
			}
		}
	})
}

// Close fails what is pending with its reason, once, and everything after it.
func TestCloseFailsWhatIsPending(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		var calls []<-chan outcome
		for range 5 {
			calls = append(calls, p.calls(t.Context(), rpc.Request{}))
			p.gets()
		}
		if p.Err() != nil {
			t.Errorf("it is over before its end: %v", p.Err())
		}
		why := errors.New("that is why")
		p.Close(why)
		p.Close(errors.New("another reason"))
		for _, done := range calls {
			if o := <-done; o.err != why { //nolint:errorlint // the very one
				t.Errorf("a call gave %v", o.err)
			}
		}
		<-p.Over()
		if _, err := p.Call(t.Context(), rpc.Request{Method: "late"}); !errors.Is(err, rpc.ErrNotSent) || !errors.Is(err, why) {
			t.Errorf("a call afterwards gives %v", err)
		}
		if p.InFlight() != 0 || p.Err() != why { //nolint:errorlint // the very one
			t.Errorf("%d are in flight, the reason is %v", p.InFlight(), p.Err())
		}
	})
}

// Drain refuses what is new and waits for what is not.
func TestDrain(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		done := p.calls(t.Context(), rpc.Request{})
		p.gets()
		idle := p.Drain()
		if _, err := p.Call(t.Context(), rpc.Request{Method: "new"}); !errors.Is(err, rpc.ErrNotSent) {
			t.Errorf("a new call gives %v", err)
		}
		select {
		case <-idle:
			t.Error("it is idle with a call in flight")
		default:
		}
		if p.Drain() != idle {
			t.Error("a second Drain waits for something else")
		}
		p.answers(1)
		if o := <-done; o.err != nil {
			t.Error(o.err)
		}
		<-idle
		<-p.Drain() // at once, with none in flight
	})
}

// Unused counts from the last call of a client; what Orla itself asks does not count as a use.
func TestUnusedAndSilent(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		want := func(unused, silent time.Duration) {
			t.Helper()
			synctest.Wait()
			if p.Unused() != unused || p.Silent() != silent {
				t.Errorf("unused for %s, silent for %s; want %s and %s", p.Unused(), p.Silent(), unused, silent)
			}
		}
		time.Sleep(time.Minute)
		want(time.Minute, time.Minute)
		own := p.calls(t.Context(), rpc.Request{Own: true})
		p.gets()
		time.Sleep(time.Minute)
		want(2*time.Minute, 2*time.Minute)
		p.answers(1)
		<-own
		want(2*time.Minute, 0)
		clients := p.calls(t.Context(), rpc.Request{})
		p.gets()
		time.Sleep(time.Minute)
		want(0, time.Minute)
		p.says("")
		want(0, 0)
		p.answers(2)
		<-clients
		time.Sleep(time.Second)
		want(time.Second, time.Second)
	})
}

// A connection that nobody uses refuses calls from the moment that it was found so.
func TestDrainUnused(t *testing.T) {
	inBubble(t, func(t *testing.T, p *process) {
		called := make(chan error)
		call := func() {
			_, err := p.Call(t.Context(), rpc.Request{Method: "tools/call"})
			called <- err
		}
		go call()
		asked := p.gets()
		time.Sleep(time.Hour)
		if p.DrainUnused(time.Minute) {
			t.Error("a call is in flight")
		}
		p.answers(asked.ID)
		if err := <-called; err != nil {
			t.Fatal(err)
		}
		if p.DrainUnused(time.Minute) {
			t.Error("it was used this very moment")
		}
		time.Sleep(time.Minute)
		if !p.DrainUnused(time.Minute) {
			t.Error("nobody has used it for a minute")
		}
		go call()
		if err := <-called; err == nil {
			t.Error("a call begins")
		}
	})
}
