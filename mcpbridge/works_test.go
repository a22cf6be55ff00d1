package mcpbridge_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// SPEC N2: a request with a large answer counts for its caller's work by the size of the answer, though its client
// hangs up. Other callers do not wait for it.
func TestN2ALargeAnswerCountsForItsCallersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 20 << 20
		w := newWorld(t, func(o *mcpbridge.Options) { o.MaxInline = 100 << 20 })
		w.gives(&mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", size)}}}, nil)
		h := httpfront.New(w.bridge, httpfront.Settings{Verify: tokens, Loopback: true})
		post := func(caller, body string, headers ...string) {
			r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
			headers = append(headers, bearer(caller, "Accept", "application/json, text/event-stream", "Content-Type", "application/json")...)
			for i := 0; i < len(headers); i += 2 {
				r.Header.Set(headers[i], headers[i+1])
			}
			h.ServeHTTP(hungUp{httptest.NewRecorder()}, r)
		}
		took := func(caller string) time.Duration {
			began := time.Now()
			post(caller, `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			return time.Since(began)
		}
		body, headers := newEra("tools/call", "echo", `"name":"echo","arguments":{}`)
		large := func() {
			for range max(1, runtime.NumCPU()/2) { // as many as one may have worked on beside others
				post("ann", body, headers...)
			}
		}
		large()
		if d := took("ann"); d > 0 {
			t.Errorf("a caller that is alone waits for %s", d)
		}
		took("bob")
		large()
		if d := took("bob"); d > 5*time.Millisecond {
			t.Errorf("another caller waits for %s", d)
		}
		if d := took("ann"); d < 10*time.Millisecond || d > 100*time.Millisecond {
			t.Errorf("the caller of answers of %d MiB waits for %s", size>>20, d)
		}
		time.Sleep(time.Second) // in a bubble: all places are given back
	})
}

// hungUp is the connection of a client that has hung up.
type hungUp struct{ *httptest.ResponseRecorder }

func (hungUp) Write([]byte) (int, error) { return 0, http.ErrHandlerTimeout }
