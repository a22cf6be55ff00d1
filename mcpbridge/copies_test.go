package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// nobody is a client of which nobody wants to know what it got.
type nobody struct {
	header http.Header
	size   int
}

func (n *nobody) Header() http.Header         { return n.header }
func (n *nobody) WriteHeader(int)             {}
func (n *nobody) Write(p []byte) (int, error) { n.size += len(p); return len(p), nil }

// A large answer is not copied again and again on its way, whatever has made it (SPEC S1).
func TestS1ALargeAnswerIsNotCopiedOften(t *testing.T) {
	const size = 8 << 20
	large := strings.Repeat("a line of text, as long as the lines of a log\n", size/46+1)
	w := newWorld(t)
	w.bridge.SetMaxInline(2 * size)
	w.set(tool("echo"), tool("peer"))
	w.answer("echo", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text(large), nil })
	raw, err := json.Marshal(text(large))
	if err != nil {
		t.Fatal(err)
	}
	w.raw("peer", func(context.Context, peer.Call) (json.RawMessage, error) { return raw, nil })
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	w.bridge.SetMaxInline(1)
	w.answer("kept", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return text(large), nil })
	w.set(tool("echo"), tool("peer"), tool("kept"))
	res, err := f.connect(t, "2025-11-25", nil).CallTool(t.Context(), &mcp.CallToolParams{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	link := uris(res)[0]
	w.bridge.SetMaxInline(2 * size)
	stateless := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	for _, c := range []struct {
		name, method, params string
		copies               int // that there may be, in quarters
	}{
		{"a peer's answer", "tools/call", `"name":"peer"`, 1},
		{"our own answer", "tools/call", `"name":"echo"`, 5},
		{"a kept answer", "resources/read", `"uri":"` + link + `"`, 5},
	} {
		for era, headers := range map[string][]string{
			"session":   {"Mcp-Session-Id", session},
			"stateless": {"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", c.method, "Mcp-Name", strings.Split(c.params, `"`)[3]},
		} {
			params := c.params
			if era == "stateless" {
				params += "," + stateless
			}
			body := `{"jsonrpc":"2.0","id":1,"method":"` + c.method + `","params":{` + params + `},"unusual":0}`
			least := ^uint64(0)
			for range 3 {
				r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader(body))
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept", "application/json, text/event-stream")
				r.Host = "localhost"
				for i := 0; i < len(headers); i += 2 {
					r.Header.Set(headers[i], headers[i+1])
				}
				got := &nobody{header: http.Header{}}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				f.ServeHTTP(got, r)
				runtime.ReadMemStats(&after)
				if got.size < size {
					t.Fatalf("%s, %s: %d bytes", c.name, era, got.size)
				}
				least = min(least, after.TotalAlloc-before.TotalAlloc)
			}
			quarters := int(least / (size / 4))
			t.Logf("%s, %s: %d.%02d copies", c.name, era, quarters/4, quarters%4*25)
			if quarters > c.copies {
				t.Errorf("%s, %s: %d bytes for an answer of %d", c.name, era, least, size)
			}
		}
	}
}

// Nothing is kept of results whose clients cancel, or leave, at any moment (SPEC S2).
func TestS2NothingIsLeftOfLargeAnswers(t *testing.T) {
	const all = 128 << 20
	w := newWorld(t)
	large := strings.Repeat("x", 300<<10)
	began := make(chan struct{}, 1000)
	w.answer("echo", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		began <- struct{}{}
		return text(large), nil
	})
	f := w.front(t, httpfront.Settings{})
	session := f.initialize(t)
	p := w.stdio(t, 16<<20)
	p.open(t)
	var clients sync.WaitGroup
	for i := range 60 {
		clients.Go(func() {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo"},"unusual":0}`, i)
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/mcp", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			r.Header.Set("Mcp-Session-Id", session)
			switch i % 3 {
			case 0:
				go func() { <-began; leave() }()
			case 1:
				go func() {
					<-began
					f.post(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i), "Mcp-Session-Id", session)
				}()
			}
			if resp, err := f.client.Do(r); err == nil { // else it has left
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	for i := range 20 {
		p.write(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo"},"unusual":0}`+"\n", 100+i))
		if i%2 == 0 {
			p.write(t, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`+"\n", 100+i))
		}
	}
	clients.Wait()
	_ = p.in.Close()
	for _, r := range p.rest(t) {
		if strings.Contains(r.raw, `"orla/`) {
			t.Errorf("a client got %.200s", r.raw)
		}
	}
	eventually(t, "all is let go of", func() bool { return w.bridge.FreeForAnswers() == all })
}
