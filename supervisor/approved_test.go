package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// approval lets calls go on when it is told to.
type approval struct {
	goOn chan error
	told chan bool // whether the call was sent
}

func (a *approval) admit(context.Context, peer.Call, *rules.Target) (supervisor.Admitted, error) {
	return supervisor.Admitted{
		Approve: func(ctx context.Context, call *peer.Call, again supervisor.Again) error {
			select {
			case err := <-a.goOn:
				call.Args = json.RawMessage(`{"as":"approved"}`)
				return errors.Join(err, again.Place())
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
		Done: func(sent bool) { a.told <- sent },
	}, nil
}

// SPEC-TOOLS 8.7: a call that waits for an approval takes no place of the calls in flight, and goes on with what was
// approved.
func TestT87ACallThatWaitsTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &approval{goOn: make(chan error), told: make(chan bool, 20_000)}
		w := newWorld(func(o *supervisor.Options) { o.Admit = a.admit })
		got := make(chan string, 20_000)
		w.with = func(f *fake) {
			f.call = func(_ context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
				got <- string(args)
				return &mcp.CallToolResult{}, nil
			}
		}
		w.Apply([]manifest.Tool{tool("a")})
		const many = 10_000 // more than there are places
		ended := make(chan error, many)
		for range many {
			go func() {
				_, err := w.Call(t.Context(), peer.Call{Tool: "a", Owner: turns.Owner{Caller: "ann"}})
				ended <- err
			}()
			synctest.Wait()
		}
		if n := len(ended); n > 0 {
			t.Fatalf("%d calls did not wait: %v", n, <-ended)
		}
		a.goOn <- nil
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if args := <-got; args != `{"as":"approved"}` {
			t.Errorf("the tool got %s", args)
		}
		w.Refuse()
		for range many - 1 {
			if err := <-ended; fault.CodeOf(err) != fault.NotReady {
				t.Fatalf("Orla stops, and a call that waits ends with %v", err)
			}
		}
	})
}

// SPEC-TOOLS 8.7: whoever has approved a call learns whether it may have reached its tool.
func TestT87WhetherACallWasSent(t *testing.T) {
	for name, c := range map[string]struct {
		errs []error // of the attempts
		want bool
	}{
		"it ran":                          {[]error{nil}, true},
		"it failed":                       {[]error{fault.New(fault.ExecutionFailed, "x")}, true},
		"it never reached the tool":       {[]error{fault.Unsent(fault.New(fault.PermissionDenied, "x"))}, false},
		"only its second attempt did not": {[]error{fault.New(fault.NotReady, "x"), fault.Unsent(fault.New(fault.NotReady, "x"))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &approval{goOn: make(chan error, 1), told: make(chan bool, 1)}
				w := newWorld(func(o *supervisor.Options) { o.Admit = a.admit; trying(o) })
				n := 0
				w.with = func(f *fake) {
					f.call = func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
						err := c.errs[min(n, len(c.errs)-1)]
						n++
						return &mcp.CallToolResult{}, err
					}
				}
				w.Apply([]manifest.Tool{tool("a", again)})
				a.goOn <- nil
				_, _ = w.Call(t.Context(), peer.Call{Tool: "a"})
				if sent := <-a.told; sent != c.want {
					t.Errorf("it is told %v after %d attempts, want %v", sent, n, c.want)
				}
			})
		})
	}
}
