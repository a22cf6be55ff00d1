package mcpbridge_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// audited is a catalog whose answers have a line in the audit log.
type audited struct {
	*world
	ended chan string
	took  *time.Duration
}

func (a audited) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	got, err := a.world.Call(ctx, call)
	got.Ended = func(outcome string, took time.Duration) { *a.took = took; a.ended <- outcome }
	return got, err
}

// explosive is an error that panics when somebody looks at it.
type explosive struct{ error }

func (explosive) As(any) bool { panic("nobody looks at it") }

// SPEC-TOOLS 8.8: a call has its line in the audit log, also if Orla panics when it makes the answer for the client.
func TestT88APanicAfterTheAnswerHasItsLine(t *testing.T) {
	w := newWorld(t)
	w.set(tool("echo"), tool("panics"))
	w.answer("panics", func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return nil, explosive{} })
	a := audited{w, make(chan string, 1), new(time.Duration)}
	w.bridge = mcpbridge.New(a, mcpbridge.Options{Version: "1.2.3", Log: slog.New(slog.NewJSONHandler(w.log, nil))})
	serve(t, w.bridge.Serve)
	f := w.front(t, httpfront.Settings{})
	s := f.connect(t, "2025-11-25", nil)
	if mustCall(t, s, nil); <-a.ended != "ok" || *a.took <= 0 {
		t.Errorf("a call has another outcome than ok, or took %v", *a.took)
	}
	if _, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "panics"}); err == nil {
		t.Error("the panic gave an answer")
	}
	select {
	case outcome := <-a.ended:
		if outcome != "execution_failed" || *a.took != 0 {
			t.Errorf("the outcome is %q, after %v", outcome, *a.took)
		}
	default:
		t.Error("the call has no line")
	}
}
