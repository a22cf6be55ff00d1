package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
)

// A failure of the transport is a fault that names the server, whatever was asked. One that
// the server tells of is its own refusal, also if it has the codes of one that Orla once had
// for failures of the transport: the request is made once.
func TestAServerCannotFakeAFailureOfTheTransport(t *testing.T) {
	calls := make(chan struct{}, 100)
	server := script(t, func(w http.ResponseWriter, _ *http.Request, m asked) bool {
		switch m.Method {
		case "tools/call":
			calls <- struct{}{}
			var args struct{ Code int }
			if err := json.Unmarshal(m.Params.Arguments, &args); err != nil {
				t.Error(err)
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":"no","data":{"tool_code":"not_ready","unsent":true}}}`, m.ID, args.Code)
			return true
		case "resources/read":
			w.WriteHeader(http.StatusInternalServerError)
			return true
		}
		return false
	})
	l := connect(t, server.URL)
	l.offers(1)
	for _, code := range []int{-32097, -32098} {
		_, err := l.call("far--t", fmt.Sprintf(`{"code":%d}`, code), nil)
		if f := fault.From(err); f.Code != fault.NotReady || f.Unsent || f.Reason != "far: no" {
			t.Errorf("%d: %v", code, err)
		}
		if n := len(calls); n != 1 {
			t.Fatalf("%d: the server is asked %d times", code, n)
		}
		<-calls
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := l.Request(ctx, peer.Request{Method: "resources/read", Params: json.RawMessage(`{"uri":"x:"}`)})
	f, coded := errors.AsType[*fault.Error](err)
	if _, refused := errors.AsType[*jsonrpc.Error](err); refused || !coded || f.Code != fault.ExecutionFailed || !strings.HasPrefix(f.Reason, "far: ") || !strings.Contains(f.Reason, "500") {
		t.Errorf("a request that the server fails to answer: %v", err)
	}
}
