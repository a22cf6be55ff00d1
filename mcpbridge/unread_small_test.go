package mcpbridge_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// stalled is the connection of a client that reads nothing unless the other end of it is read.
type stalled struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (s stalled) Write(p []byte) (int, error) { return s.Conn.Write(p) }

// SPEC S2, N2: a small answer that its client does not read takes room of its caller, until it is written or
// given up. If there is no room, the connection is given up. One that is read takes none.
func TestS2ASmallAnswerThatNobodyReadsTakesRoom(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0, "later": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const size, many, all = 60_000, 1400, 128 << 20
				w := newWorld(t)
				answer := &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: strings.Repeat("x", size)}}}
				w.answer("echo", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
					time.Sleep(after)
					return answer, nil
				})
				h := httpfront.New(w.bridge, httpfront.Settings{Verify: tokens, Loopback: true})
				setLimits(h, time.Second, time.Hour, time.Hour)
				var requests sync.WaitGroup
				var open atomic.Int64
				call := func(caller string) (client net.Conn) {
					client, server := net.Pipe()
					body, headers := newEra("tools/call", "echo", `"name":"echo","arguments":{}`)
					headers = append(headers, bearer(caller, "Accept", "application/json, text/event-stream", "Content-Type", "application/json")...)
					r := httptest.NewRequest(http.MethodPost, "http://localhost/mcp", strings.NewReader(body))
					for i := 0; i < len(headers); i += 2 {
						r.Header.Set(headers[i], headers[i+1])
					}
					open.Add(1)
					requests.Go(func() {
						h.ServeHTTP(stalled{httptest.NewRecorder(), server}, r)
						_ = server.Close()
						open.Add(-1)
					})
					return client
				}
				var clients []net.Conn
				for range many {
					clients = append(clients, call("ann"))
				}
				time.Sleep(after + 50*time.Second)
				synctest.Wait()
				taken, left := all-w.bridge.FreeForAnswers(), open.Load()
				if taken < left*size || left > all/2/size || left < all/8/size {
					t.Errorf("%d answers of %d are being sent, and take %d bytes", left, many, taken)
				}
				bob := call("bob")
				time.Sleep(after + time.Second) // its client is slow
				read, err := io.ReadAll(bob)
				if len(read) < size || err != nil {
					t.Errorf("another caller reads %d bytes: %v", len(read), err)
				}
				for _, client := range clients {
					_ = client.Close()
				}
				requests.Wait()
				if free := w.bridge.FreeForAnswers(); free != all {
					t.Errorf("%d bytes of room are not given back", all-free)
				}
			})
		})
	}
}
