package mcpbridge_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

func TestG5AnswerOfEveryCombination(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		res    *mcp.CallToolResult
		err    error
		code   any // of the result; nil for none
		reason any
		retry  any
		text   string // of the last block
		rpc    int64
	}{
		"nothing at all":    {},
		"a result":          {res: text("a"), text: "a"},
		"the tool's error":  {res: &mcp.CallToolResult{IsError: true}, code: "execution_failed", retry: false},
		"the tool's code":   {res: &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"tool_code": "rate_limited", "retryable": true}}, code: "rate_limited", retry: true},
		"a fault":           {err: fault.New(fault.Crashed, "it fell"), code: "crashed", reason: "it fell", retry: true, text: "it fell"},
		"a fault, its word": {err: &fault.Error{Code: fault.ExecutionFailed, Reason: "503", Retry: &yes}, code: "execution_failed", reason: "503", retry: true, text: "503"},
		"result and fault":  {res: text("half"), err: fault.New(fault.Timeout, "late"), code: "timeout", reason: "late", retry: true, text: "late"},
		"a plain error":     {err: errors.New("secret"), code: "execution_failed", retry: false, reason: fault.From(errors.New("x")).Reason, text: fault.From(errors.New("x")).Reason},
		"cancelled":         {err: context.Canceled, code: "canceled", retry: false, reason: "the call was cancelled", text: "the call was cancelled"},
		"deadline":          {err: fmt.Errorf("x: %w", context.DeadlineExceeded), code: "timeout", retry: true, reason: "the call's deadline passed", text: "the call's deadline passed"},
		"unknown tool":      {err: fault.Wrap(fault.UnsupportedTool, supervisor.ErrUnknownTool, "no x"), rpc: -32602},
	} {
		before, _ := json.Marshal(c.res)
		got, rpc := results.Of(peer.Answer{Result: c.res}, c.err)
		if after, _ := json.Marshal(c.res); string(after) != string(before) {
			t.Errorf("%s: the provider's result became %s", name, after)
		}
		if c.rpc != 0 {
			if got != nil || rpc == nil || rpc.Code != c.rpc {
				t.Errorf("%s: %v, %v", name, got, rpc)
			}
			continue
		}
		if rpc != nil || got.Content == nil {
			t.Fatalf("%s: %v, %v", name, got, rpc)
		}
		if got.IsError != (c.code != nil) || got.Meta["tool_code"] != c.code || got.Meta["tool_reason"] != c.reason || got.Meta["retryable"] != c.retry {
			t.Errorf("%s: isError %v, _meta %v", name, got.IsError, got.Meta)
		}
		if c.text != "" && got.Content[len(got.Content)-1].(*mcp.TextContent).Text != c.text {
			t.Errorf("%s: content %v; want %q at the end", name, got.Content, c.text)
		}
	}
}

func TestG5KeysOfTheProtocolDoNotPass(t *testing.T) {
	got, _ := results.Of(peer.Answer{Result: &mcp.CallToolResult{Meta: mcp.Meta{"io.modelcontextprotocol/serverInfo": "me", "mine": 1}}}, nil)
	if fmt.Sprint(got.Meta) != "map[mine:1]" {
		t.Errorf("got %v", got.Meta)
	}
}

func TestG5ErrorsOverEveryTransport(t *testing.T) {
	w := newWorld(t)
	w.set(tool("bad"), tool("panics"), tool("echo"))
	w.answer("bad", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return text("half"), fault.Wrap(fault.Crashed, errors.New("the secret cause"), "it crashed")
	})
	w.answer("panics", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { panic("the secret panic") })
	f := w.front(t, httpfront.Settings{})
	for name, s := range map[string]*mcp.ClientSession{
		"legacy": f.connect(t, "2025-11-25", nil), "new": f.connect(t, newest, nil),
		"sse": f.connectSSE(t, nil), "stdio": connect(t, stdioTransport(t, w), "2025-06-18", nil),
	} {
		eventually(t, "tools are listed", func() bool {
			list, err := s.ListTools(t.Context(), nil)
			return err == nil && len(list.Tools) == 3
		})
		res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "bad"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		raw, _ := json.Marshal(res)
		if !res.IsError || res.Meta["tool_code"] != "crashed" || res.Meta["retryable"] != true || res.Meta["tool_reason"] != "it crashed" || strings.Contains(string(raw), "secret") {
			t.Errorf("%s: %s", name, raw)
		}
		res, err = s.CallTool(t.Context(), &mcp.CallToolParams{Name: "panics"})
		if err != nil || !res.IsError || res.Meta["tool_code"] != "execution_failed" {
			t.Errorf("%s: a panic gave %v, %v", name, res, err)
		} else if raw, _ := json.Marshal(res); strings.Contains(string(raw), "secret") {
			t.Errorf("%s: the panic's text crossed: %s", name, raw)
		}
		if got := mustCall(t, s, nil); got == "" {
			t.Errorf("%s: after a panic: %q", name, got)
		}
	}
	for _, line := range w.log.lines(t, "panic in a call") {
		if !strings.Contains(line["stack"].(string), "answer_test.go") || line["panic"] != "the secret panic" {
			t.Errorf("the panic's line: %v", line)
		}
	}
}

// SPEC G5b: what has no form in JSON must not leave the client without an answer.
func TestG5bAnswersThatCannotBeSent(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	s := f.connect(t, "2025-11-25", nil)
	for name, res := range map[string]*mcp.CallToolResult{
		"broken structured content": {Content: text("a").Content, StructuredContent: json.RawMessage(`{"a":`)},
		"NaN":                       {Content: text("a").Content, StructuredContent: map[string]any{"x": math.NaN()}},
		"a channel in _meta":        {Content: text("a").Content, Meta: mcp.Meta{"x": make(chan int), "y": 1}},
		"a nil block":               {Content: []mcp.Content{&mcp.TextContent{Text: "a"}, nil}},
		"an empty resource":         {Content: []mcp.Content{&mcp.TextContent{Text: "a"}, &mcp.EmbeddedResource{}}},
		"a typed nil":               {Content: []mcp.Content{&mcp.TextContent{Text: "a"}, (*mcp.TextContent)(nil)}},
		"_meta of a block":          {Content: []mcp.Content{&mcp.TextContent{Text: "a"}, &mcp.TextContent{Meta: mcp.Meta{"x": math.Inf(1)}}}},
	} {
		w.answer("echo", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return res, nil })
		if got := mustCall(t, s, nil); got != "a" {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestG5bHostileSchemas(t *testing.T) {
	w := newWorld(t)
	deep := strings.Repeat(`{"properties":{"a":`, 500) + `{}` + strings.Repeat(`}}`, 500)
	tools := []*mcp.Tool{tool("good"), {Name: "none"}, {Name: "go", InputSchema: func() {}}}
	for i, schema := range []string{
		`null`, `5`, `"x"`, `[]`, `true`, `{}`, `{"type":"array"}`, `{"type":["object"]}`, `{"type":`, ``,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":5}}}`,
		`{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"A B"}}}`,
		`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`,
		`{"type":"object","properties":` + deep + `}`,
	} {
		tools = append(tools, &mcp.Tool{Name: fmt.Sprint("t", i), InputSchema: json.RawMessage(schema)})
	}
	tools = append(tools, &mcp.Tool{Name: "out", InputSchema: json.RawMessage(`{"type":"object"}`), OutputSchema: json.RawMessage(`{`)})
	digits := `{"type":"object","properties":{"n":{"type":"number","maximum":12345678901234567890.123456789,"default":1.0}}}`
	tools = append(tools, &mcp.Tool{Name: "digits", InputSchema: json.RawMessage(digits)})
	w.set(tools...)
	f := w.front(t, httpfront.Settings{})
	var r reply
	eventually(t, "the list is followed", func() bool {
		r = f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
		return strings.Contains(r.raw, `"digits"`)
	})
	if !strings.Contains(r.raw, `12345678901234567890.123456789`) || !strings.Contains(r.raw, `"default":1.0`) {
		t.Errorf("digits are lost: %s", r.raw)
	}
	if !strings.Contains(r.raw, `"good"`) {
		t.Errorf("the good tool is not listed: %s", r.raw)
	}
	if n := len(w.log.lines(t, "a tool cannot be listed")); n == 0 {
		t.Error("nothing about the bad ones in the log")
	}
}

func TestG5bNumbersKeepTheirDigits(t *testing.T) {
	w := newWorld(t)
	const numbers = `{"a":9007199254740993,"b":1.0,"c":1e40,"d":0.1000}`
	w.answer("echo", func(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: text(string(args)).Content, StructuredContent: args}, nil
	})
	f := w.front(t, httpfront.Settings{})
	body, headers := newEra("tools/call", "echo", `"name":"echo","arguments":`+numbers)
	quoted, _ := json.Marshal(numbers)
	for _, r := range []reply{
		f.post(t, body, headers...),
		f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":`+numbers+`}}`),
	} {
		if !strings.Contains(r.raw, `"structuredContent":`+numbers) || !strings.Contains(r.raw, string(quoted)) {
			t.Errorf("got %s", r.raw)
		}
	}
}
