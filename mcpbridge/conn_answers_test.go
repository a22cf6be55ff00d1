package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/supervisor"
)

// SPEC G1, L1: of calls that come all at once each gets its one answer, whole,
// whatever is written together, and the end of input waits for all.
func TestG1AnswersThatAreWrittenTogetherStayWhole(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int64
	sizes := []int{10, 3000, 16 << 10, 40 << 10, 200 << 10}
	w.raw("echo", func(context.Context, supervisor.Call) (json.RawMessage, error) {
		n := int(calls.Add(1))
		return fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, strings.Repeat("x", sizes[n%len(sizes)])), nil
	})
	p := w.stdio(t, maxLine)
	p.open(t)
	const most = 300
	var all strings.Builder
	for id := range most {
		all.WriteString(call(id, "echo") + "\n")
	}
	go func() {
		p.in.Write([]byte(all.String())) //nolint:errcheck // the answers say
		_ = p.in.Close()
	}()
	answers, size := p.rest(t), 0
	for _, a := range answers {
		size += len(a.raw)
		if a.failed {
			t.Fatalf("failed: %.200s", a.raw)
		}
	}
	want := 0
	for n := 1; n <= most; n++ {
		want += sizes[n%len(sizes)]
	}
	if got := len(ids(answers)); got != most || len(answers) != most || size < want || size > want+most*200 {
		t.Errorf("%d answers of %d ids with %d bytes; want %d with %d", len(answers), got, size, most, want)
	}
}

// SPEC G5b, F2: what a provider should never have given fails its call, on every
// transport, and neither Orla nor the connection.
func TestG5bAPanicOverAnAnswerEndsNothing(t *testing.T) {
	w := newWorld(t)
	w.set(tool("echo"), tool("torn"))
	w.raw("torn", func(context.Context, supervisor.Call) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[`), nil
	})
	p := w.stdio(t, maxLine)
	p.open(t)
	f := w.front(t, mcpbridge.HTTPSettings{})
	session := f.initialize(t)
	for range 2 { // a call with this id is over
		p.write(t, call(1, "torn")+"\n")
		for _, r := range []reply{p.next(t), f.post(t, call(1, "torn"), "Mcp-Session-Id", session)} {
			if string(r.id) != "1" || r.code != jsonrpc.CodeInternalError {
				t.Errorf("an answer that is no JSON: %d %s", r.status, r.raw)
			}
		}
	}
	p.write(t, call(2, "echo")+"\n")
	if r := p.next(t); r.failed {
		t.Errorf("the next call: %s", r.raw)
	}
}

// A client on stdio that calls and does not read makes Orla hold no more than
// other clients can.
func TestAnswersThatNobodyReadsAreBoundedInSum(t *testing.T) {
	const (
		calls  = 80
		size   = 3 << 20
		budget = 64 << 20 // half of all: as much as one client leaves to others
		few    = 8        // the one beyond the limit, and those that are being written and read
	)
	w := newWorld(t)
	answer := fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, strings.Repeat("x", size))
	var held, most atomic.Int64
	full := make(chan struct{})
	isFull := sync.OnceFunc(func() { close(full) })
	w.raw("echo", func(ctx context.Context, _ supervisor.Call) (json.RawMessage, error) {
		if err := turns.HeldBy(ctx).Need(ctx, size); err != nil {
			return nil, err
		}
		now := held.Add(1)
		for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
		}
		if now == budget/size {
			isFull()
		}
		return answer, nil
	})
	p := w.stdio(t, maxLine)
	p.open(t)
	for id := range calls {
		p.write(t, call(id, "echo")+"\n")
	}
	within(t, full, "room that is full")
	for range calls {
		if !p.out.Scan() || len(p.out.Bytes()) < size {
			t.Fatalf("not answered: %v %.200s", p.out.Err(), p.out.Bytes())
		}
		held.Add(-1)
	}
	if got := most.Load(); got > budget/size+few {
		t.Errorf("%d answers of %d bytes were held at once; want %d at most", got, size, budget/size+few)
	}
}

// busyClient calls more while it reads each answer, until it is content.
type busyClient struct {
	calls   *io.PipeWriter
	content func() bool
	called  <-chan struct{}
	id      int
}

func (c *busyClient) Write(p []byte) (int, error) {
	const most = 1000
	for range 3 {
		if c.id == most || c.content() {
			_ = c.calls.Close()
			break
		}
		name := "echo"
		if c.id == 0 {
			name = "first"
		}
		_, _ = io.WriteString(c.calls, call(c.id, name)+"\n") // its answer says
		<-c.called
		if c.id++; c.id == 1 {
			break
		}
	}
	return len(p), nil
}

// SPEC I2: a call is in the log when it is over, also while others have no end.
func TestI2ACallIsLoggedThoughOthersHaveNoEnd(t *testing.T) {
	w := newWorld(t)
	called := make(chan struct{}, 1)
	w.set(tool("echo"), tool("first"))
	for _, name := range []string{"echo", "first"} {
		w.raw(name, func(context.Context, supervisor.Call) (json.RawMessage, error) {
			called <- struct{}{}
			return json.RawMessage(`{"content":[]}`), nil
		})
	}
	in, calls := io.Pipe()
	logged := func() bool { return strings.Contains(w.log.String(), `"tool":"first"`) }
	c := &busyClient{calls: calls, content: logged, called: called}
	ended := make(chan error, 1)
	go func() { ended <- w.bridge.ServeStdio(t.Context(), in, c, maxLine) }()
	_, _ = io.WriteString(calls, initialize("2025-11-25")+"\n")
	if err := within(t, ended, "end"); err != nil || c.id == 1000 {
		t.Errorf("after %d calls the first is not in the log; the connection ended with %v", c.id, err)
	}
}
