package mcpbridge_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// many makes tools as they are in life: a schema of some properties.
func many(n int) []*mcp.Tool {
	tools := make([]*mcp.Tool, n)
	for i := range tools {
		tools[i] = &mcp.Tool{
			Name: fmt.Sprintf("tool-%05d", i), Title: "A <tool> & more", Description: strings.Repeat("does one thing. ", 8),
			InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","description":"where"},"days":{"type":"integer","minimum":1,"maximum":14.50}},"required":["city"]}`),
			Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
		}
		if i%3 == 0 {
			tools[i].OutputSchema = json.RawMessage(`{"type":"object"}`)
			tools[i].Meta = mcp.Meta{"a": 1}
		}
	}
	return tools
}

// slowSchema holds up whoever encodes it the second time: the SDK, which is given the tool.
type slowSchema struct {
	encoded *atomic.Int32
	began   chan struct{}
	open    chan struct{}
}

func (s slowSchema) MarshalJSON() ([]byte, error) {
	if s.encoded.Add(1) == 2 {
		close(s.began)
		<-s.open
	}
	return []byte(`{"type":"object"}`), nil
}

// SPEC G5: a call of a tool that is being listed waits until it is.
func TestACallOfWhatIsBeingListed(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	slow := slowSchema{new(atomic.Int32), make(chan struct{}), make(chan struct{})}
	session := f.initialize(t)
	w.set(&mcp.Tool{Name: "first", InputSchema: slow}, tool("second"))
	<-slow.began
	answered := make(chan reply, 1)
	go func() {
		answered <- f.post(t, call(1, "second"), "Mcp-Session-Id", session, "Accept", "*/*")
	}()
	for range 50 { // it would have its answer by now
		f.send(t, http.MethodGet, "/healthz", "")
	}
	close(slow.open)
	if r := <-answered; r.status != http.StatusOK || !strings.Contains(r.raw, `"result"`) {
		t.Errorf("the call was answered with %d %s", r.status, r.raw)
	}
}

// What goes out is what the SDK alone would say, on every page, in both eras,
// though large pages go out as JSON bodies.
func TestTheListIsTheSDKs(t *testing.T) {
	needs.Time(t, "compares lists of thousands of tools")
	w := newWorld(t)
	tools := many(1234)
	w.set(tools...)
	f := w.front(t, httpfront.Settings{})
	plain := mcp.NewServer(&mcp.Implementation{Name: "orla", Title: "Orla", Version: "1.2.3"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
		SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
	})
	for _, tool := range tools {
		plain.AddTool(tool, nil)
	}
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return plain }, &mcp.StreamableHTTPOptions{Stateless: true}))
	defer server.Close()
	sdk := &front{url: server.URL, client: f.client}
	for _, era := range []string{"", newest} {
		eventually(t, "the list is followed", func() bool {
			raw := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).raw
			return strings.Contains(raw, "tool-00000") && !strings.Contains(raw, `"echo"`)
		})
		ask := func(of *front, cursor string) (page reply, result, next string) {
			params := ""
			if cursor != "" {
				params = fmt.Sprintf(`"cursor":%q`, cursor)
			}
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{%s}}`, params)
			var headers []string
			if era != "" {
				body, headers = newEra("tools/list", "", params)
			}
			page = of.post(t, body, headers...)
			var says struct{ NextCursor string }
			if err := json.Unmarshal(page.result, &says); err != nil {
				t.Fatal(err)
			}
			// Each has cursors of its own.
			result = string(page.result)
			if says.NextCursor != "" {
				result = strings.Replace(result, says.NextCursor, "CURSOR", 1)
			}
			return page, result, says.NextCursor
		}
		var cursor, theirs string
		for page := 0; page == 0 || cursor != ""; page++ {
			got, ours, next := ask(f, cursor)
			want, like, after := ask(sdk, theirs)
			if comparable(t, ours) != comparable(t, like) || got.status != want.status || len(got.result) < 1000 || (next == "") != (after == "") {
				t.Fatalf("era %q, page %d: %s", era, page, difference(comparable(t, ours), comparable(t, like)))
			}
			cursor, theirs = next, after
			if page > 2 {
				t.Fatal("more pages than tools")
			}
		}
	}
}

// difference shows where two texts part.
func difference(got, want string) string {
	i := 0
	for i < len(got) && i < len(want) && got[i] == want[i] {
		i++
	}
	from := max(0, i-100)
	return fmt.Sprintf("%q; want %q", got[from:min(len(got), i+100)], want[from:min(len(want), i+100)])
}

func TestTheListOfNoTools(t *testing.T) {
	w := newWorld(t)
	w.set()
	f := w.front(t, httpfront.Settings{})
	eventually(t, "the list is empty", func() bool {
		return strings.Contains(f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).raw, `"tools":[]}`)
	})
}

// bench serves one request again and again, without a network.
func bench(b *testing.B, tools int, body string, headers []string, change ...func(*catalog)) {
	c := newCatalog()
	c.set(many(tools)...)
	c.answer("tool-00000", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text("ok"), nil })
	for _, f := range change {
		f(c)
	}
	bridge := mcpbridge.New(c, mcpbridge.Options{Version: "1", Log: slog.New(slog.DiscardHandler)})
	h := httpfront.New(bridge, httpfront.Settings{Loopback: true})
	b.ReportAllocs()
	for b.Loop() {
		req := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		out := httptest.NewRecorder()
		h.ServeHTTP(out, req)
		if raw, _ := io.ReadAll(out.Body); out.Code != http.StatusOK || !strings.Contains(string(raw[max(0, len(raw)-2000):]), "result") && len(raw) < 2000 {
			b.Fatalf("%d %.200s", out.Code, raw)
		}
	}
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body, headers := newEra("tools/list", "", "")
			bench(b, n, body, headers)
		})
	}
}

func BenchmarkCall(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body, headers := newEra("tools/call", "tool-00000", `"name":"tool-00000","arguments":{"city":"Oslo"}`)
			bench(b, n, body, headers)
		})
	}
}

// A page that begins anywhere ends where one from the beginning does, and costs no copy: a
// client that does not read holds nothing of its own.
func TestG3PagesFromAnywhereAreTheSameBytes(t *testing.T) {
	w := newWorld(t)
	w.set(many(2500)...)
	f := w.front(t, httpfront.Settings{})
	for _, c := range []struct {
		after       string
		first, last int // -1 for none
	}{
		{"tool-00000", 1, 999},
		{"tool-00998", 999, 999},
		{"tool-00998x", 999, 999},
		{"tool-00999", 1000, 1999},
		{"tool-01500", 1501, 1999},
		{"tool-02300", 2301, 2499},
		{"tool-02499", -1, -1},
		{"z", -1, -1},
		{"a", 0, 999},
	} {
		var page struct {
			NextCursor string
			Tools      []struct{ Name string }
		}
		r := f.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":%q}}`, base64.RawURLEncoding.EncodeToString([]byte(c.after))))
		if err := json.Unmarshal(r.result, &page); err != nil {
			t.Fatalf("%v: %.200s", err, r.raw)
		}
		first, last := -1, -1
		if n := len(page.Tools); n > 0 {
			_, _ = fmt.Sscanf(page.Tools[0].Name, "tool-%d", &first)
			_, _ = fmt.Sscanf(page.Tools[n-1].Name, "tool-%d", &last)
		}
		if more := c.last >= 0 && c.last < 2499; first != c.first || last != c.last || (page.NextCursor != "") != more {
			t.Errorf("after %s: %d to %d, next %q; want %d to %d", c.after, first, last, page.NextCursor, c.first, c.last)
		}
	}
}

// SPEC S2, N2: while what a capsule lists anew is prepared, calls of what is listed go on.
func TestS2CallsGoOnWhileAListIsMade(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	done := w.bridge.HoldListing()
	defer done()
	w.set(tool("echo"), tool("another"))
	if got := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}`); got.result == nil {
		t.Errorf("the call is answered with %s", got.raw)
	}
}
