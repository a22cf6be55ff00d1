package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/stdio"
)

// pipes is a client on stdio that writes lines and reads them.
type pipes struct {
	in    *io.PipeWriter
	out   *bufio.Scanner
	outR  *io.PipeReader
	ended chan error
	stop  context.CancelFunc
}

func (w *world) stdio(t *testing.T, maxLine int64) *pipes {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	p := &pipes{in: inW, outR: outR, out: bufio.NewScanner(outR), ended: make(chan error, 1), stop: cancel}
	p.out.Buffer(nil, 64<<20)
	over := make(chan struct{})
	go func() {
		defer close(over)
		err := stdio.Serve(ctx, w.bridge, inR, outW, maxLine)
		_ = outW.Close()
		_ = inR.Close()
		p.ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		_ = inW.Close()
		_ = outR.Close()
		<-over
	})
	return p
}

func (p *pipes) write(t *testing.T, s string) {
	t.Helper()
	if _, err := io.WriteString(p.in, s); err != nil {
		t.Fatalf("write: %v", err)
	}
}

// scan goes on to the next line, if there is one: not to that the list of tools has
// changed, which any session may hear that began before the test's tools were known.
func (p *pipes) scan() bool {
	for p.out.Scan() {
		if !strings.Contains(p.out.Text(), `"method":"notifications/tools/list_changed"`) {
			return true
		}
	}
	return false
}

// next reads one message.
func (p *pipes) next(t *testing.T) reply {
	t.Helper()
	lines := make(chan string, 1)
	go func() {
		if p.scan() {
			lines <- p.out.Text()
		} else {
			close(lines)
		}
	}()
	line := within(t, lines, "line")
	if line == "" {
		t.Fatal("the connection has ended")
	}
	r := reply{raw: line}
	r.parse(t)
	return r
}

// rest reads to the end.
func (p *pipes) rest(t *testing.T) []reply {
	t.Helper()
	all := make(chan []reply, 1)
	go func() {
		var rs []reply
		for p.scan() {
			r := reply{raw: p.out.Text()}
			r.parse(t)
			rs = append(rs, r)
		}
		all <- rs
	}()
	return within(t, all, "end")
}

func (p *pipes) open(t *testing.T) {
	t.Helper()
	p.write(t, initialize("2025-11-25")+"\n"+`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	if r := p.next(t); r.failed {
		t.Fatalf("initialize: %s", r.raw)
	}
}

// ids returns the ids that were answered.
func ids(rs []reply) map[string]reply {
	m := map[string]reply{}
	for _, r := range rs {
		m[string(r.id)] = r
	}
	return m
}

const maxLine = 1 << 20

func TestG1EOFAnswersAllThatWasRead(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	w.set(tool("echo"), tool("slow"))
	w.answer("slow", g.answer)
	p := w.stdio(t, maxLine)
	p.open(t)
	eventually(t, "slow is listed", func() bool {
		p.write(t, `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`+"\n")
		for {
			if r := p.next(t); r.result != nil {
				return strings.Contains(r.raw, "slow")
			}
		}
	})
	// Ids that are written in many ways, a listening subscription, and no
	// newline at the end.
	odd := `{"jsonrpc":"2.0","id":"<\u0061&>","method":"tools/call","params":{"name":"echo"}}` + "\n" +
		`{"jsonrpc":"2.0","id":7.0,"method":"ping"}` + "\n" +
		`{"jsonrpc":"2.0","Id":9,"method":"ping"}` + "\n" +
		`{"jsonrpc":"2.0","id":11,"method":""}` + "\n" +
		`{"jsonrpc":"2.0","id":"sub","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}` + "\n"
	p.write(t, call(1, "slow")+"\n"+odd+call(2, "slow"))
	go func() {
		within(t, g.began, "call")
		_ = p.in.Close()
		within(t, g.began, "call")
		close(g.open)
	}()
	got := ids(p.rest(t))
	for _, id := range []string{"1", "2", `"<\u0061&>"`, "7.0", "11"} {
		if _, ok := got[id]; !ok {
			t.Errorf("request %s has no answer; got %v", id, got)
		}
	}
	if err := within(t, p.ended, "end"); err != nil {
		t.Errorf("ServeStdio: %v", err)
	}
}

// inACall is a client on stdio whose call 1 of echo has begun, and ends when its
// gate opens.
func inACall(t *testing.T) (*pipes, *gate) {
	t.Helper()
	w, g := newWorld(t), newGate()
	w.answer("echo", g.answer)
	p := w.stdio(t, maxLine)
	p.open(t)
	p.write(t, call(1, "echo")+"\n")
	within(t, g.began, "call")
	return p, g
}

func TestG1EOFAfterACancelledCallDoesNotHang(t *testing.T) {
	p, g := inACall(t)
	p.write(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`+"\n")
	// One that is cancelled in the same breath may never reach a handler.
	for i := range 50 {
		p.write(t, call(100+i, "echo")+"\n"+fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, 100+i)+"\n")
	}
	_ = p.in.Close()
	close(g.open) // a cancel that overtook its call was for nothing
	for _, r := range p.rest(t) {
		if r.failed && r.code == 0 {
			t.Errorf("an error with code 0: %s", r.raw)
		}
	}
	if err := within(t, p.ended, "end"); err != nil {
		t.Errorf("ServeStdio: %v", err)
	}
}

// SPEC C4: a call that was cancelled while it ran gets no answer, and the next one does.
func TestC4ACancelledCallGetsNoAnswer(t *testing.T) {
	p, g := inACall(t)
	p.write(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`+"\n"+call(2, "echo")+"\n")
	within(t, g.began, "call") // lines are read in order
	close(g.open)
	if r := p.next(t); string(r.id) != "2" || r.failed {
		t.Errorf("after the cancelled call: %s", r.raw)
	}
	_ = p.in.Close()
	for _, r := range p.rest(t) {
		t.Errorf("a second answer: %s", r.raw)
	}
}

func TestG1LinesOfEveryKind(t *testing.T) {
	w := newWorld(t)
	p := w.stdio(t, 2000)
	p.write(t, "\xef\xbb\xbf"+initialize("2025-11-25")+"\r\n\r\n\n   \n\xef\xbb\xbf\n")
	if r := p.next(t); r.failed || string(r.id) != "0" {
		t.Fatalf("initialize behind a byte order mark: %s", r.raw)
	}
	for name, c := range map[string]struct {
		line string
		code int64
		id   string
	}{
		"broken JSON":          {`{"jsonrpc":"2.0","id":3,`, -32700, "null"},
		"two values":           {`{"jsonrpc":"2.0","id":3,"method":"ping"} {}`, -32700, "null"},
		"plain text":           {`hello`, -32700, "null"},
		"no JSON-RPC":          {`{"id":4,"method":"ping"}`, -32600, "4"},
		"wrong version":        {`{"jsonrpc":"1.0","id":"x","method":"ping"}`, -32600, `"x"`},
		"a number":             {`17`, -32600, "null"},
		"method is a number":   {`{"jsonrpc":"2.0","id":5,"method":5}`, -32600, "5"},
		"id is a list":         {`{"jsonrpc":"2.0","id":[1],"method":"ping"}`, -32600, "[1]"},
		"id is a fraction":     {`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, -32600, "1.5"},
		"id is too large":      {`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, -32600, "9007199254740993"},
		"too long":             {`{"jsonrpc":"2.0","id":6,"method":"ping","params":{"x":"` + strings.Repeat("x", 2000) + `"}}`, -32600, "null"},
		"empty batch":          {`[]`, -32600, "null"},
		"unknown method":       {`{"jsonrpc":"2.0","id":8,"method":"no/such"}`, -32601, "8"},
		"empty method":         {`{"jsonrpc":"2.0","id":8,"method":""}`, -32601, "8"},
		"missing params":       {`{"jsonrpc":"2.0","id":9,"method":"tools/call"}`, -32602, "9"},
		"null params":          {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":null}`, -32602, "9"},
		"params of wrong type": {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":[1]}`, -32602, "9"},
		"name of wrong type":   {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":5}}`, -32602, "9"},
		"unknown tool":         {call(9, "nope"), -32602, "9"},
		"unknown resource":     {`{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"orla://x"}}`, -32602, "9"},
		"expired resource":     {`{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"orla://answers/x"}}`, -32602, "9"},
		"unknown prompt":       {`{"jsonrpc":"2.0","id":9,"method":"prompts/get","params":{"name":"x"}}`, -32602, "9"},
		"completion":           {`{"jsonrpc":"2.0","id":9,"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":"b"}}}`, -32602, "9"},
		"subscribe":            {`{"jsonrpc":"2.0","id":9,"method":"resources/subscribe","params":{"uri":"orla://x"}}`, -32602, "9"},
		"initialized twice":    {initialize("2025-11-25"), -32600, "0"},
		"initialize, no shape": {`{"jsonrpc":"2.0","id":9,"method":"initialize","params":[]}`, -32602, "9"},
		"id on notification":   {`{"jsonrpc":"2.0","id":9,"method":"notifications/initialized"}`, -32600, "9"},
		"cursor":               {`{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"cursor":"!"}}`, -32602, "9"},
		"discover":             {`{"jsonrpc":"2.0","id":9,"method":"server/discover"}`, -32601, "9"},
		"newer version":        {`{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01","io.modelcontextprotocol/clientCapabilities":{}}}}`, -32022, "9"},
		"new era, unknown":     {`{"jsonrpc":"2.0","id":9,"method":"no/such","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`, -32601, "9"},
	} {
		p.write(t, c.line+"\n")
		r := p.next(t)
		if !r.failed || r.code != c.code || string(r.id) != c.id {
			t.Errorf("%s: got id %s, code %d, %q; want id %s, code %d", name, r.id, r.code, r.text, c.id, c.code)
		}
		if len(r.text) > 300 || strings.Contains(r.text, "*mcp.") {
			t.Errorf("%s: internal text in %q", name, r.text)
		}
	}
	p.write(t, call(99, "echo")+"\n")
	if r := p.next(t); r.failed || string(r.id) != "99" {
		t.Errorf("after all that, a call: %s", r.raw)
	}
}

func TestG1BeforeInitialize(t *testing.T) {
	w := newWorld(t)
	p := w.stdio(t, maxLine)
	p.write(t, `{"jsonrpc":"2.0","id":1,"method":"no/such"}`+"\n")
	if r := p.next(t); r.code != -32601 {
		t.Errorf("an unknown method: %s; want -32601", r.raw)
	}
	p.write(t, `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n")
	if r := p.next(t); r.code != -32600 {
		t.Errorf("tools/list: %s; want -32600", r.raw)
	}
	p.write(t, `{"jsonrpc":"2.0","id":3,"method":"ping"}`+"\n")
	if r := p.next(t); r.failed {
		t.Errorf("ping: %s", r.raw)
	}
	p.write(t, `{"jsonrpc":"2.0","id":4,"method":"initialize","params":{"protocolVersion":5}}`+"\n")
	if r := p.next(t); r.code != -32602 {
		t.Errorf("initialize with params of the wrong type: %s; want -32602", r.raw)
	}
}

func TestG1Batches(t *testing.T) {
	w := newWorld(t)
	p := w.stdio(t, maxLine)
	p.open(t)
	p.write(t, `[`+call(1, "echo")+`,{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":2,"method":"no/such"},5,`+call(3, "echo")+"]\n")
	var answers []struct {
		ID    json.RawMessage
		Error struct{ Code int }
	}
	r := p.next(t)
	if err := json.Unmarshal([]byte(r.raw), &answers); err != nil {
		t.Fatalf("%s: %v", r.raw, err)
	}
	got := map[string]int{}
	for _, a := range answers {
		got[string(a.ID)] = a.Error.Code
	}
	if want := map[string]int{"1": 0, "2": -32601, "null": -32600, "3": 0}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v; want %v", got, want)
	}
	p.write(t, `[{"jsonrpc":"2.0","method":"notifications/x"}]`+"\n"+call(4, "echo")+"\n")
	if r := p.next(t); string(r.id) != "4" {
		t.Errorf("a batch of notifications was answered: %s", r.raw)
	}
	p.write(t, `["x",{"id":5}]`+"\n")
	if r := p.next(t); strings.Count(r.raw, "-32600") != 2 {
		t.Errorf("a batch of nothing valid: %s", r.raw)
	}
	p.write(t, `[`+call(6, "echo")+`]`) // and the end
	_ = p.in.Close()
	if rs := p.rest(t); len(rs) != 1 || !strings.HasPrefix(rs[0].raw, "[") {
		t.Errorf("a batch of one at the end: %v", rs)
	}
}

func TestG1AnIDInUseIsRefusedAndLaterFree(t *testing.T) {
	p, g := inACall(t)
	p.write(t, call(1, "echo")+"\n")
	if r := p.next(t); r.code != -32600 || string(r.id) != "1" {
		t.Errorf("an id in use: %s", r.raw)
	}
	close(g.open)
	for range 200 {
		if r := p.next(t); r.failed {
			t.Fatalf("an id that is free again: %s", r.raw)
		}
		p.write(t, call(1, "echo")+"\n")
	}
}

func TestG1ContextEndsAClientThatDoesNotRead(t *testing.T) {
	w := newWorld(t)
	p := w.stdio(t, maxLine)
	for i := range 20 {
		p.write(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)+"\n")
	}
	p.stop()
	if err := within(t, p.ended, "end"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
}

func TestG1ContextEndsCallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := inACall(t)
		began := time.Now()
		p.stop()
		if err := within(t, p.ended, "end"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v; want context.Canceled", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// SPEC H4: a call that ended within the grace is answered, though the context
// ends right then.
func TestG1LastAnswersGetOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // there is half a second for it
		w := newWorld(t)
		p := (*pipes)(nil)
		w.answer("echo", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			p.stop()
			return text("last words"), nil
		})
		p = w.stdio(t, maxLine)
		p.open(t)
		p.write(t, call(1, "echo")+"\n")
		if rs := p.rest(t); len(rs) != 1 || !strings.Contains(rs[0].raw, "last words") {
			t.Errorf("got %v", rs)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestG1AWriteErrorEndsIt(t *testing.T) {
	w := newWorld(t)
	in, client := io.Pipe()
	defer func() { _ = client.Close() }()
	ended := make(chan error, 1)
	go func() {
		ended <- stdio.Serve(context.Background(), w.bridge, in, brokenWriter{}, maxLine)
		_ = in.Close()
	}()
	if _, err := io.WriteString(client, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if err := within(t, ended, "end"); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("got %v; want the write's error", err)
	}
}

func TestG1EveryMethodOfTheSDKIsKnown(t *testing.T) {
	w := newWorld(t)
	session := connect(t, stdioTransport(t, w), "2025-11-25", nil)
	if got := mustCall(t, session, map[string]any{"a": 1}); got != `{"a":1}` {
		t.Errorf("echo: %s", got)
	}
	for _, check := range []func() error{
		func() error { return session.Ping(t.Context(), nil) },
		func() error { _, err := session.ListTools(t.Context(), nil); return err },
		func() error { _, err := session.ListPrompts(t.Context(), nil); return err },
		func() error { _, err := session.ListResources(t.Context(), nil); return err },
		func() error { _, err := session.ListResourceTemplates(t.Context(), nil); return err },
	} {
		if err := check(); err != nil {
			t.Error(err)
		}
	}
	if len(mcpbridge.Methods()) < 15 {
		t.Error("methods are missing")
	}
}

// stdioTransport is the SDK's client transport to a bridge on stdio.
func stdioTransport(t *testing.T, w *world) mcp.Transport {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = stdio.Serve(context.Background(), w.bridge, inR, outW, maxLine)
		_ = outW.Close()
	}()
	t.Cleanup(func() {
		_ = inW.Close()
		_ = outR.Close()
		<-ended
	})
	return &mcp.IOTransport{Reader: outR, Writer: inW}
}

// SPEC S2: of a client that goes on asking and does not read its answers, no more is read
// while many wait. When it reads, all are answered.
func TestS2AClientThatDoesNotReadIsNotReadFrom(t *testing.T) {
	needs.Time(t, "makes thousands of calls")
	synctest.Test(t, func(t *testing.T) {
		const asks = 2000
		w := newWorld(t)
		w.set(&mcp.Tool{Name: "long", Description: strings.Repeat("x", 32<<10), InputSchema: json.RawMessage(`{"type":"object"}`)})
		p := w.stdio(t, maxLine)
		p.open(t)
		var taken atomic.Int32
		go func() {
			for i := range asks {
				_, _ = io.WriteString(p.in, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list"}`, i)+"\n") // what fails is not counted
				taken.Add(1)
			}
		}()
		synctest.Wait()
		if n := taken.Load(); n < 100 || n > asks*2/3 {
			t.Errorf("%d of %d requests are read while nobody reads the answers", n, asks)
		}
		for range asks {
			p.next(t)
		}
		if err := p.in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := within(t, p.ended, "end"); err != nil {
			t.Error(err)
		}
	})
}
