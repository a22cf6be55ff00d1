package mcpbridge_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/mcpbridge"
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
	w.answer("echo", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		err := turns.HeldBy(ctx).Need(ctx, size)
		if err != nil {
			return nil, err
		}
		mu.Lock()
		held += size
		most = max(most, held)
		mu.Unlock()
		select { // the others come meanwhile
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
		mu.Lock()
		held -= size
		mu.Unlock()
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "done"}}}, nil
	})
	f := w.front(t, mcpbridge.HTTPSettings{})
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
			case 2: // by the SDK
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
