package mcpbridge_test

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// spy observes calls.
type spy struct {
	mu     sync.Mutex // guards the fields that follow
	starts []mcpbridge.CallStart
	ends   []mcpbridge.CallEnd
}

func (s *spy) observe(ctx context.Context, call mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts = append(s.starts, call)
	return ctx, func(end mcpbridge.CallEnd) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ends = append(s.ends, end)
	}
}

// take returns what was seen since the last time.
func (s *spy) take() ([]mcpbridge.CallStart, []mcpbridge.CallEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	starts, ends := s.starts, s.ends
	s.starts, s.ends = nil, nil
	return starts, ends
}

// watched is a world with a spy.
func watched(t testing.TB) (*world, *spy) {
	t.Helper()
	s := &spy{}
	return newWorld(t, func(o *mcpbridge.Options) { o.Observe = s.observe }), s
}

const (
	header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	inMeta = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// Each call is observed once, whichever way it comes and however it ends.
func TestEachCallIsObservedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		transport client.Transport
		version   string
		connect   func(*testing.T, *world) *mcp.ClientSession
	}{
		"HTTP, with sessions": {client.StreamableHTTP, "2025-11-25", func(t *testing.T, w *world) *mcp.ClientSession {
			return w.front(t, httpfront.Settings{}).connect(t, "2025-11-25", nil)
		}},
		"HTTP, stateless": {client.StreamableHTTP, "2026-07-28", func(t *testing.T, w *world) *mcp.ClientSession {
			return w.front(t, httpfront.Settings{}).connect(t, "2026-07-28", nil)
		}},
		"SSE": {client.LegacySSE, "2024-11-05", func(t *testing.T, w *world) *mcp.ClientSession {
			return w.front(t, httpfront.Settings{}).connectSSE(t, nil)
		}},
		"stdio, with sessions": {client.Stdio, "2025-06-18", func(t *testing.T, w *world) *mcp.ClientSession {
			return connect(t, stdioTransport(t, w), "2025-06-18", nil)
		}},
		"stdio, stateless": {client.Stdio, "2026-07-28", func(t *testing.T, w *world) *mcp.ClientSession {
			return connect(t, stdioTransport(t, w), "2026-07-28", nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := watched(t)
			w.set(tool("echo"), tool("fails"), tool("peer"))
			w.answer("fails", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
				return nil, fault.New(fault.InvalidInput, "arguments: n: is required")
			})
			w.raw("peer", func(context.Context, peer.Call) (json.RawMessage, error) {
				return json.RawMessage(`{"content":[],"isError":true,"_meta":{"tool_code":"rate_limited"}}`), nil
			})
			client := c.connect(t, w)
			for range 3 {
				for _, meta := range []mcp.Meta{nil, {"traceparent": inMeta, "tracestate": "a=b"}, {"traceparent": "bad"}} {
					for tool, want := range map[string]mcpbridge.CallEnd{
						"echo":  {OK: true, ResponseBytes: len(`{"content":[{"type":"text","text":"{\"x\":1}"}]}`)},
						"fails": {Code: "invalid_input", IsError: true},
						"peer":  {Code: "rate_limited", IsError: true},
						"nope":  {Code: "unsupported_tool"},
					} {
						_, err := client.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]int{"x": 1}, Meta: meta})
						if (err != nil) != (tool == "nope") {
							t.Fatalf("call %s: %v", tool, err)
						}
						starts, ends := s.take()
						if len(starts) != 1 || len(ends) != 1 {
							t.Fatalf("%s was observed %d times and ended %d times", tool, len(starts), len(ends))
						}
						start, end := starts[0], ends[0]
						if start.Request == nil {
							t.Errorf("%s with %v has no id", tool, meta)
						}
						parent := ""
						if meta["traceparent"] == inMeta {
							parent = inMeta
						}
						if start.Tool != tool || start.Listed != (tool != "nope") || start.ID == "" || start.Caller == "" || string(start.Args) != `{"x":1}` ||
							start.Transport != c.transport || start.Version != c.version || start.Parent.Parent() != parent {
							t.Errorf("%s began as %+v", tool, start)
						}
						if end.OK != want.OK || end.Code != want.Code || end.IsError != want.IsError || end.Took <= 0 || want.ResponseBytes > 0 && end.ResponseBytes == 0 {
							t.Errorf("%s ended as %+v, want %+v", tool, end, want)
						}
					}
				}
			}
		})
	}
}

// The trace of a call is in the context that its provider sees, in the log, and
// where there is one in _meta that is the one, not that of the header.
func TestTheTraceOfACallReachesItsProvider(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	var seen []string
	w.answer("echo", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, trace.From(ctx).Parent()+" "+trace.From(ctx).State())
		return text(""), nil
	})
	f := w.front(t, httpfront.Settings{})
	session := []string{"Mcp-Session-Id", f.initialize(t)}
	traced := slices.Concat(session, []string{"Traceparent", header, "Tracestate", "h=1"})
	f.post(t, call(1, "echo"), traced...)
	f.post(t, strings.Replace(call(2, "echo"), `"arguments"`, `"_meta":{"traceparent":"`+inMeta+`","tracestate":"m=1"},"arguments"`, 1), traced...)
	f.post(t, strings.Replace(call(3, "echo"), `"arguments"`, `"_meta":{"traceparent":"no","tracestate":"m=1"},"arguments"`, 1), traced...)
	f.post(t, call(4, "echo"), slices.Concat(session, []string{"Traceparent", "no", "Tracestate", "h=1"})...)
	f.post(t, call(5, "echo"), traced[2:]...)
	want := []string{header + " h=1", inMeta + " m=1", header + " h=1", " ", header + " h=1"}
	if !slices.Equal(seen, want) {
		t.Errorf("the provider saw %q, want %q", seen, want)
	}
	var logged []any
	for _, line := range w.log.calls(t, 5) {
		logged = append(logged, line["trace_id"])
	}
	if ids := []any{header[3:35], inMeta[3:35], header[3:35], nil, header[3:35]}; !slices.Equal(logged, ids) {
		t.Errorf("the log has %v, want %v", logged, ids)
	}
}

// SPEC G6, G8: /metrics is on the same port, for those who may call.
func TestG6MetricsAreBehindTheSameGuard(t *testing.T) {
	w := newWorld(t, func(o *mcpbridge.Options) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("numbers")) })
	})
	open := w.front(t, httpfront.Settings{})
	closed := w.front(t, httpfront.Settings{Verify: tokens})
	for name, c := range map[string]struct {
		front  *front
		method string
		header []string
		status int
	}{
		"as a scraper":           {open, http.MethodGet, nil, http.StatusOK},
		"by another name":        {open, http.MethodGet, []string{"Host", "evil.example"}, http.StatusForbidden},
		"from a web page":        {open, http.MethodGet, []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		"by another method":      {open, http.MethodPost, nil, http.StatusMethodNotAllowed},
		"without the token":      {closed, http.MethodGet, nil, http.StatusUnauthorized},
		"with another token":     {closed, http.MethodGet, []string{"Authorization", "Bearer wrong"}, http.StatusUnauthorized},
		"with a token, as asked": {closed, http.MethodGet, []string{"Authorization", "Bearer ann"}, http.StatusOK},
	} {
		r := c.front.send(t, c.method, "/metrics", "", c.header...)
		if r.status != c.status || (r.raw == "numbers") != (c.status == http.StatusOK) {
			t.Errorf("%s: %d %.80q, want %d", name, r.status, r.raw, c.status)
		}
	}
}

func BenchmarkObserve(b *testing.B) {
	body := call(1, "echo")
	for name, observe := range map[string]func(context.Context, mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)){
		"nobody": nil,
		"somebody": func(ctx context.Context, _ mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
			return ctx, func(mcpbridge.CallEnd) {}
		},
	} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, func(o *mcpbridge.Options) { o.Observe = observe })
			f := w.front(b, httpfront.Settings{})
			session := f.initialize(b)
			b.ReportAllocs()
			for b.Loop() {
				f.post(b, body, "Mcp-Session-Id", session)
			}
		})
	}
}

// SPEC I2, S2: a code that a tool has made up is cut in the log, and for who observes calls and may keep it. Its client gets it as it is.
func TestS2ALongCodeIsCut(t *testing.T) {
	t.Parallel()
	w, s := watched(t)
	w.set(tool("peer"), tool("own"))
	code := strings.Repeat("x", 64<<10)
	w.raw("peer", func(context.Context, peer.Call) (json.RawMessage, error) {
		return json.RawMessage(`{"content":[],"isError":true,"_meta":{"tool_code":"` + code + `"}}`), nil
	})
	w.answer("own", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{IsError: true, Meta: mcp.Meta{"tool_code": code}}, nil
	})
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	for n, name := range []string{"peer", "own"} {
		if r := f.post(t, call(1, name), "Mcp-Session-Id", session); !strings.Contains(r.raw, code) {
			t.Errorf("%s: the client gets %.200s", name, r.raw)
		}
		_, ends := s.take()
		lines := w.log.calls(t, n+1)
		logged, _ := lines[n]["code"].(string)
		if seen := ends[0].Code; len(seen) > 200 || len(logged) > 200 || !strings.HasPrefix(seen, "xxx") || !strings.HasPrefix(logged, "xxx") {
			t.Errorf("%s: the observer gets %d bytes, and the log %d", name, len(seen), len(logged))
		}
	}
}
