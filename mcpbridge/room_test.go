package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// However many calls give large answers at once, by whichever way they came, what
// they hold together is bounded: the others wait, and all are answered.
func TestAnswersAreBoundedInSum(t *testing.T) {
	const (
		calls  = 24
		size   = 16 << 20
		budget = 128 << 20
	)
	w := newWorld(t)
	var mu sync.Mutex
	var held, most int
	var several sync.Once
	together := make(chan struct{})
	w.answer("echo", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		err := turns.AccountOf(ctx).Need(ctx, size)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		held += size
		most = max(most, held)
		if held == 2*size {
			several.Do(func() { close(together) })
		}
		mu.Unlock()
		select {
		case <-together:
		case <-time.After(patience):
		}
		select { // the others come meanwhile
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		mu.Lock()
		held -= size
		mu.Unlock()
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
	})
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() {
			r := reply{}
			switch i % 3 {
			case 0:
				r = f.post(t, body, headers...)
			case 1:
				r = f.post(t, call(i, "echo"), "Mcp-Session-Id", session)
			case 2: // with progress
				r = f.post(t, strings.Replace(call(i, "echo"), `"params":{`, `"params":{"_meta":{"progressToken":1},`, 1), "Mcp-Session-Id", session)
			}
			if r.failed || !strings.Contains(r.raw, "done") {
				t.Errorf("call %d: %d %s", i, r.status, r.raw)
			}
		})
	}
	wg.Wait()
	if most > budget+size || most <= size {
		t.Errorf("%d MiB were held at once, want more than one answer and %d at most", most>>20, (budget+size)>>20)
	}
}

// However a call ends, whichever way it came, the room that it held is free again.
func TestTheRoomOfAnswersIsWholeAfterEveryEnd(t *testing.T) {
	const all, size = 128 << 20, 1 << 20
	w := newWorld(t)
	began := make(chan struct{}, 1)
	release := make(chan error)
	w.answer("echo", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		if err := turns.AccountOf(ctx).Need(ctx, size); err != nil {
			return nil, err
		}
		began <- struct{}{}
		select {
		case err := <-release:
			return text("done"), err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	})
	f := w.front(t, httpfront.Settings{})
	ends := map[string]func(session string, leave func()){
		"an answer": func(string, func()) { release <- nil },
		"a timeout": func(string, func()) { release <- fault.New(fault.Timeout, "too slow") },
		"a cancellation": func(session string, _ func()) {
			f.post(t, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, "Mcp-Session-Id", session)
		},
		"a client that left, and an answer": func(_ string, leave func()) { leave(); release <- nil },
	}
	for name, end := range ends {
		for way, body := range map[string]string{
			"a call":  call(1, "echo"),
			"a token": strings.Replace(call(1, "echo"), `"params":{`, `"params":{"_meta":{"progressToken":1},`, 1),
		} {
			session := f.initialize(t)
			conn := dial(t, f.addr())
			if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
				"Mcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body); err != nil {
				t.Fatal(err)
			}
			within(t, began, "call")
			if free := w.bridge.FreeForAnswers(); free > all-size/2 {
				t.Errorf("%s by %s: %d bytes are free during the call", name, way, free)
			}
			end(session, func() { _ = conn.Close() })
			eventually(t, "the room is whole after "+name+" of "+way, func() bool { return w.bridge.FreeForAnswers() == all })
		}
	}
}

// What is read, by a client that does not take it, holds room like the answer of a
// call, whether Orla keeps it or a peer has it (SPEC S2).
func TestS2WhatIsReadHoldsRoom(t *testing.T) {
	needs.Time(t, "reads answers of many megabytes")
	const all, size = 128 << 20, 12 << 20 // more than sockets take
	holds := func(w *world, f *front, params string) {
		t.Helper()
		session := f.initialize(t)
		conn := dial(t, f.addr())
		body := `{"jsonrpc":"2.0","id":1,` + params + `}`
		if _, err := fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"Mcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1024)); err != nil {
			t.Fatal(err)
		}
		if free := w.bridge.FreeForAnswers(); free > all-size/2 {
			t.Errorf("%s: %d bytes are free while the answer is on its way", params, free)
		}
		_ = conn.Close()
		eventually(t, "the room is whole after "+params, func() bool { return w.bridge.FreeForAnswers() == all })
	}
	p := newPeer(everything())
	p.answer = func(ctx context.Context, _ peer.Request) (json.RawMessage, error) {
		if err := turns.AccountOf(ctx).Need(ctx, size); err != nil {
			return nil, err
		}
		return json.RawMessage(`{"x":"` + strings.Repeat("x", size) + `"}`), nil
	}
	w := served(t, p)
	f := w.front(t, httpfront.Settings{})
	holds(w, f, `"method":"resources/read","params":{"uri":"mem://a"}`)
	holds(w, f, `"method":"prompts/get","params":{"name":"greet"}`)
	holds(w, f, `"method":"completion/complete","params":{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"who","value":"y"}}`)

	w = newWorld(t, small)
	w.gives(text(strings.Repeat("x", size)), nil)
	f = w.front(t, httpfront.Settings{})
	link := uris(ask(t, f.connect(t, "2025-11-25", nil)))[0]
	read := `"method":"resources/read","params":{"uri":"` + link + `"}`
	holds(w, f, read)
	w.bridge.SetReadPatience(time.Millisecond)
	for name, hold := range map[string]func() func(){
		"room": func() func() { return w.bridge.HoldForAnswers(all) }, "a turn": w.bridge.HoldTurns,
	} {
		release := hold()
		if r := f.post(t, `{"jsonrpc":"2.0","id":1,`+read+`}`); !r.failed || !strings.Contains(r.raw, string(fault.RateLimited)) {
			t.Errorf("without %s: %d %.200s", name, r.status, r.raw)
		}
		release()
	}
	w.bridge.SetReadPatience(patience)
	if r := f.post(t, `{"jsonrpc":"2.0","id":1,`+read+`}`); r.failed || len(r.raw) < size {
		t.Errorf("with room: %d %.200s", r.status, r.raw)
	}
}

// What a call holds after its client was asked is counted until its answer has gone
// out, or nobody can go on with it any more (SPEC S2).
func TestS2AConversationHoldsRoom(t *testing.T) {
	const all, size = 128 << 20, 4 << 20
	took, release := make(chan error, 1), make(chan struct{})
	w := talking(t, func(ctx context.Context, c peer.Client) (string, error) {
		_, _ = c.Ask(ctx, "roots/list", nil) // given up, or answered
		took <- turns.AccountOf(ctx).Need(ctx, size)
		<-release
		return "done", nil
	})
	settings := httpfront.Settings{Verify: tokens, Callers: map[string]string{"ann": "1"}}
	f := w.front(t, settings)
	whole := func() bool { return w.bridge.FreeForAnswers() == all }
	state, questions := required(t, f.round(t, "", bearer("ann")...))
	for name := range questions {
		go f.round(t, goOn(state, `"`+name+`":{"roots":[]}`), bearer("ann")...)
	}
	if err := within(t, took, "room"); err != nil {
		t.Fatal(err)
	}
	if free := w.bridge.FreeForAnswers(); free > all-size/2 {
		t.Errorf("%d bytes are free while the call is answered", free)
	}
	release <- struct{}{}
	eventually(t, "the room is whole after the answer", whole)
	_, _ = required(t, f.round(t, "", bearer("ann")...))
	settings.Callers = nil
	f.Configure(settings)
	_ = within(t, took, "room")
	close(release)
	eventually(t, "the room is whole after the token was removed", whole)
}
