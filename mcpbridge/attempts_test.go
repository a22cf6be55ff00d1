package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC-TOOLS 6.2: how many attempts there were is in the answer of a call that
// failed, in the log and in what observers are told; a success stays as it is.
func TestAttemptsAreTold(t *testing.T) {
	w, s := watched(t)
	limited := fault.New(fault.RateLimited, "slow down (after 3 attempts)")
	limited.RetryAfter = 2500 * time.Millisecond
	w.set(tool("fails"), tool("peer"), tool("peer_fails"), tool("peer_large"), tool("says_so"), tool("refused"), tool("echo"))
	w.mu.Lock()
	w.attempts = 3
	w.mu.Unlock()
	w.answer("fails", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return nil, limited })
	w.answer("refused", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32603, Message: "no"}
	})
	const peers = `{"content":[],"_meta":{"mine":1}}`
	w.raw("peer", func(context.Context, peer.Call) (json.RawMessage, error) { return json.RawMessage(peers), nil })
	w.raw("peer_fails", func(context.Context, peer.Call) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[],"isError":true,"_meta":{"attempts":"mine","x":1.0}}`), nil
	})
	w.raw("peer_large", func(context.Context, peer.Call) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[],"isError":true,"_meta":{"x":"` + strings.Repeat("x", 4<<20) + `"}}`), nil
	})
	w.answer("says_so", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"tool_code": "busy"}}, nil
	})
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	calls := 0
	for tool, want := range map[string]string{
		"fails":      `"_meta":{"attempts":3,"retry_after_ms":2500,"retryable":true,"tool_code":"rate_limited","tool_reason":"slow down (after 3 attempts)"}`,
		"peer":       `"result":` + peers,
		"peer_fails": `"_meta":{"attempts":3,"tool_code":"execution_failed","retryable":false,"x":1.0}`,
		"peer_large": `"_meta":{"attempts":3,"retryable":false,"tool_code":"execution_failed"}`,
		"says_so":    `"_meta":{"attempts":3,"retryable":false,"tool_code":"busy"}`,
		"refused":    `"error":{"code":-32603,"message":"no"}`,
		"echo":       `"result":{"content":[{"type":"text","text":"{\"x\":1}"}]}`,
	} {
		r := f.post(t, strings.Replace(call(1, tool), "{}", `{"x":1}`, 1), "Mcp-Session-Id", session)
		if !strings.Contains(r.raw, want) {
			t.Errorf("%s: got %s; want %s", tool, r.raw, want)
		}
		_, ends := s.take()
		calls++
		attempts, lines := 3, w.log.calls(t, calls)
		logged := lines[len(lines)-1]["attempts"]
		if tool == "echo" { // nobody counted
			attempts = 1
		}
		if ends[0].Attempts != attempts || attempts > 1 && fmt.Sprint(logged) != "3" || attempts == 1 && logged != nil {
			t.Errorf("%s: the observer is told of %d attempts, the log of %v; want %d", tool, ends[0].Attempts, logged, attempts)
		}
	}
}

// SPEC-TOOLS 2.1: a call's task is what its client says, else a name of the
// session that is none of its id.
func TestTaskOfACall(t *testing.T) {
	tasks := make(chan string, 1)
	w := newWorld(t)
	w.set(tool("echo"))
	w.raw("echo", func(_ context.Context, call peer.Call) (json.RawMessage, error) {
		if said := strings.Contains(string(call.Meta), "orloj.dev/task"); said != (len(call.Meta) > 0) {
			t.Errorf("the tool does not get what the client said: %s", call.Meta)
		}
		tasks <- call.Task
		return json.RawMessage(`{"content":[]}`), nil
	})
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	task := func(meta string, header ...string) string {
		t.Helper()
		body := call(1, "echo")
		if meta != "" {
			body = strings.Replace(body, `"arguments"`, `"_meta":{"orloj.dev/task":`+meta+`},"arguments"`, 1)
		}
		f.post(t, body, header...)
		return within(t, tasks, "call")
	}
	own := task("", "Mcp-Session-Id", session)
	if !strings.HasPrefix(own, "session-") || len(own) != len("session-")+16 || strings.Contains(own, session[:8]) {
		t.Errorf("the session %s is called %q", session, own)
	}
	if again := task("", "Mcp-Session-Id", session); again != own {
		t.Errorf("the same session is called %q and %q", own, again)
	}
	if other := task("", "Mcp-Session-Id", f.initialize(t)); other == own {
		t.Error("two sessions have one name")
	}
	if got := task(""); got != "" {
		t.Errorf("a call without a session is part of %q", got)
	}
	long := strings.Repeat("x", 257)
	for meta, want := range map[string]string{
		`"weekly-report"`:    "weekly-report",
		`"caf\u00e9 \"x\""`:  `café "x"`,
		`"` + long[1:] + `"`: long[1:],
		`"` + long + `"`:     own,
		`""`:                 own,
		`5`:                  own,
		`{"a":"b"}`:          own,
		`null`:               own,
	} {
		if got := task(meta, "Mcp-Session-Id", session); got != want {
			t.Errorf("%.40s is called %.40q, want %.40q", meta, got, want)
		}
	}
	if got := task(`"x"`); got != "x" {
		t.Errorf("without a session a task is called %q", got)
	}
	for name, s := range map[string]*mcp.ClientSession{
		"sse": f.connectSSE(t, nil), "stdio": connect(t, stdioTransport(t, w), "2025-06-18", nil),
		"newest": f.connect(t, newest, nil), "newest stdio": connect(t, stdioTransport(t, w), newest, nil),
	} {
		for _, meta := range []mcp.Meta{nil, {"orloj.dev/task": "y"}, nil} {
			if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Meta: meta}); err != nil {
				t.Fatal(err)
			}
			got := within(t, tasks, "call")
			switch {
			case meta != nil && got != "y", meta == nil && (got == "") != (name == "newest"), meta == nil && got != "" && !strings.HasPrefix(got, "session-"):
				t.Errorf("%s, %v: a call is part of %q", name, meta, got)
			}
		}
	}
}
