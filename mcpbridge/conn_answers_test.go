package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/mcpbridge/transport/stdio"
)

// SPEC G1, L1: of calls that come all at once each gets its one answer, whole,
// whatever is written together, and the end of input waits for all.
func TestG1AnswersThatAreWrittenTogetherStayWhole(t *testing.T) {
	w := newWorld(t)
	var calls atomic.Int64
	sizes := []int{10, 3000, 16 << 10, 40 << 10, 200 << 10}
	w.raw("echo", func(context.Context, peer.Call) (json.RawMessage, error) {
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
	w.raw("torn", func(context.Context, peer.Call) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[`), nil
	})
	f := w.front(t, httpfront.Settings{}) // its end awaits what is written to p, unless p has ended before
	session := f.initialize(t)
	p := w.stdio(t, maxLine)
	p.open(t)
	for range 2 { // a call with this id is over
		p.write(t, call(1, "torn")+"\n")
		for _, r := range []reply{p.next(t), f.post(t, call(1, "torn"), "Mcp-Session-Id", session)} {
			if string(r.id) != "1" || r.code != jsonrpc.CodeInternalError {
				t.Errorf("an answer that is not JSON: %d %s", r.status, r.raw)
			}
		}
	}
	p.write(t, call(2, "echo")+"\n")
	if r := p.next(t); r.failed {
		t.Errorf("the next call: %s", r.raw)
	}
}

// An answer on stdio that nobody reads holds its room until it is read, whichever
// way its call went: one client has Orla hold no more than others can.
func TestAnAnswerHoldsRoomUntilItIsWritten(t *testing.T) {
	for name, meta := range map[string]string{"plain": "", "with progress": `"_meta":{"progressToken":1},`} {
		t.Run(name, func(t *testing.T) {
			const calls, size = 8, 300 << 10
			w := newWorld(t)
			answer := fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, strings.Repeat("x", size))
			w.raw("echo", func(ctx context.Context, _ peer.Call) (json.RawMessage, error) {
				return answer, turns.AccountOf(ctx).Need(ctx, size)
			})
			p := w.stdio(t, maxLine)
			p.open(t)
			for id := range calls {
				p.write(t, strings.Replace(call(id, "echo"), `"params":{`, `"params":{`+meta, 1)+"\n")
			}
			eventually(t, "all are answered but the one that is being written", func() bool {
				return strings.Count(w.log.String(), `"msg":"call"`) >= calls-1
			})
			if held := w.bridge.Held(); held < (calls-1)*(size-turns.Little) {
				t.Errorf("%d bytes are held for %d answers of %d that nobody has read", held, calls, size)
			}
			for range calls {
				if r := p.next(t); r.failed || len(r.raw) < size {
					t.Errorf("not answered: %.200s", r.raw)
				}
			}
			eventually(t, "the room is free again", func() bool { return w.bridge.Held() == 0 })
		})
	}
}

// busyClient calls more while it reads each answer, until it is content or has no
// patience any more.
type busyClient struct {
	calls   *io.PipeWriter
	content func() bool
	called  <-chan struct{}
	late    time.Time
	id      int
}

func (c *busyClient) Write(p []byte) (int, error) {
	for range 3 {
		if c.content() || time.Now().After(c.late) {
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
		w.raw(name, func(context.Context, peer.Call) (json.RawMessage, error) {
			called <- struct{}{}
			return json.RawMessage(`{"content":[]}`), nil
		})
	}
	p := w.stdio(t, maxLine)
	p.open(t)
	p.write(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`+"\n")
	for !strings.Contains(p.next(t).raw, `"first"`) { // it is listed
	}
	in, calls := io.Pipe()
	logged := func() bool { return strings.Contains(w.log.String(), `"tool":"first"`) }
	c := &busyClient{calls: calls, content: logged, called: called, late: time.Now().Add(patience)}
	ended := make(chan error, 1)
	go func() { ended <- stdio.Serve(t.Context(), w.bridge, in, c, maxLine) }()
	_, _ = io.WriteString(calls, initialize("2025-11-25")+"\n")
	if err := within(t, ended, "end"); err != nil || !logged() {
		t.Errorf("after %d calls the first is not in the log; the connection ended with %v", c.id, err)
	}
}
