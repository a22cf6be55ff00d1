package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// noDeletes is a Judge that allows no call that deletes.
type noDeletes struct{ context.Context }

var errDeletes = errors.New("it deletes")

func (n noDeletes) Until() context.Context { return n }

func (n noDeletes) May(target *rules.Target) *rejudge.Refusal {
	if slices.Contains(target.Classes(), manifest.ClassDelete) {
		return &rejudge.Refusal{Err: errDeletes}
	}
	return nil
}

// SPEC-TOOLS 8.7: an approval is for the tool that somebody has approved a call of, and not for one that takes its place
// between the approval and the call.
func TestT87AToolThatTakesThePlaceOfAnApprovedOneIsJudged(t *testing.T) {
	of := func(class manifest.OperationClass) manifest.Tool {
		return tool("a", func(t *manifest.Tool) {
			t.Resource = &manifest.Resource{OperationClasses: []manifest.OperationClass{class}}
		})
	}
	var w *world
	var sent []bool
	w = newWorld(func(o *supervisor.Options) {
		o.Admit = func(ctx context.Context, _ peer.Call, _ *rules.Target) (supervisor.Admitted, error) {
			return supervisor.Admitted{
				Approve: func(_ context.Context, _ *peer.Call, again supervisor.Again) error {
					err := again.Place()
					w.Apply([]manifest.Tool{of(manifest.ClassDelete)})
					return err
				},
				Done:  func(was bool) { sent = append(sent, was) },
				Judge: noDeletes{ctx},
			}, nil
		}
	})
	ran := 0
	w.with = func(f *fake) {
		f.call = func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			ran++
			return &mcp.CallToolResult{}, nil
		}
	}
	w.Apply([]manifest.Tool{of(manifest.ClassWrite)})
	_, err := w.Call(t.Context(), peer.Call{Tool: "a", Args: json.RawMessage(`{}`)})
	if !errors.Is(err, errDeletes) || ran > 0 {
		t.Errorf("a call was made %d times: %v", ran, err)
	}
	if !slices.Equal(sent, []bool{false}) {
		t.Errorf("the approval is told that it was sent: %v", sent)
	}
}
