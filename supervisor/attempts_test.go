package supervisor_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/retry"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// again is a policy of one more attempt, for a tool that may be called twice.
func again(t *manifest.Tool) {
	t.Retry = manifest.Retry{MaxAttempts: 2, MaxBackoff: time.Second}
	t.Resource = &manifest.Resource{}
}

// trying makes a world's calls follow the policies of its tools.
func trying(o *supervisor.Options) { o.Wrap = retry.Wrap(retry.Options{Log: o.Log}) }

// SPEC-TOOLS 6: an attempt that Orla's stop ends is the last one; and whoever
// puts something around attempts learns at once that no other is to be begun.
func TestStopEndsAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, attempts := newWorld(trying), 0
		w.with = func(f *fake) {
			f.call = func(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
				attempts++
				return untilDone(ctx, args)
			}
		}
		w.Apply([]manifest.Tool{tool("a", again)})
		done := make(chan error)
		go func() {
			_, err := w.Call(t.Context(), peer.Call{Tool: "a"})
			done <- err
		}()
		synctest.Wait()
		select {
		case <-w.Stopping():
			t.Error("it says that it stops")
		default:
		}
		w.Refuse()
		<-w.Stopping()
		grace, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go w.Drain(grace)
		if err := <-done; attempts != 1 || fault.CodeOf(err) != fault.NotReady {
			t.Errorf("%d attempts, %v", attempts, err)
		}
	})
}

// SPEC H4: a call that waits to be admitted ends with Orla as well.
func TestStopEndsAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(func(o *supervisor.Options) {
			o.Admit = func(ctx context.Context, _ peer.Call, _ *rules.Target) (supervisor.Admitted, error) {
				<-ctx.Done()
				return supervisor.Admitted{}, context.Cause(ctx)
			}
		})
		w.Apply([]manifest.Tool{tool("a")})
		done := make(chan error)
		go func() {
			_, err := w.Call(t.Context(), peer.Call{Tool: "a"})
			done <- err
		}()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		go w.Drain(over)
		if err := <-done; fault.CodeOf(err) != fault.NotReady {
			t.Errorf("got %v", err)
		}
	})
}

// A call that its peer will not begin is begun by whatever took its place,
// which need not be a peer, and which each attempt finds again (SPEC E1).
func TestSuccessorNeedNotBeAPeer(t *testing.T) {
	old := newFakePeer("old", peer.Offers{Known: true, Tools: listed("p")})
	old.gone = true
	waiting := &waitingPeer{fakePeer: old, entered: make(chan struct{}), leave: make(chan struct{})}
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return waiting, nil },
			manifest.Simple:  func(t manifest.Tool) (supervisor.Provider, error) { return &fake{tool: t}, nil },
		},
		Log: slog.New(slog.DiscardHandler),
	})
	s.Apply([]manifest.Tool{capsuleTool("p", "")})
	got := make(chan error)
	go func() {
		_, err := s.Call(t.Context(), peer.Call{Tool: "p"})
		got <- err
	}()
	<-waiting.entered
	s.Apply([]manifest.Tool{tool("p")})
	close(waiting.leave)
	if err := <-got; err != nil {
		t.Errorf("the call was lost: %v", err)
	}
}

// BenchmarkCall is a plain call of a tool: as it is, with what internal/call/retry
// puts around a tool without a policy, and around one that has one.
func BenchmarkCall(b *testing.B) {
	answer := &mcp.CallToolResult{}
	wrap := retry.Wrap(retry.Options{Log: slog.New(slog.DiscardHandler)})
	for _, way := range []struct {
		name   string
		wrap   func(manifest.Tool, *mcp.Tool, supervisor.Attempt) supervisor.Attempt
		change []func(*manifest.Tool)
	}{{"bare", nil, nil}, {"wrapped", wrap, nil}, {"policy", wrap, []func(*manifest.Tool){again}}} {
		b.Run(way.name, func(b *testing.B) {
			w := newWorld(func(o *supervisor.Options) { o.Wrap = way.wrap })
			w.with = func(f *fake) {
				f.call = func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) { return answer, nil }
			}
			w.Apply([]manifest.Tool{tool("a", append(way.change, func(t *manifest.Tool) { t.Run.Timeout = time.Minute })...)})
			call := peer.Call{Tool: "a", Args: json.RawMessage(`{}`)}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := w.Call(b.Context(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// SPEC-TOOLS 2.1: the attempts of a call have its one id, also of a call that
// came without one.
func TestTheAttemptsOfACallShareItsID(t *testing.T) {
	w := newWorld(func(o *supervisor.Options) {
		o.Wrap = func(_ manifest.Tool, _ *mcp.Tool, next supervisor.Attempt) supervisor.Attempt {
			return func(ctx context.Context, call peer.Call) (peer.Answer, error) {
				if _, err := next(ctx, call); err != nil {
					return peer.Answer{}, err
				}
				return next(ctx, call)
			}
		}
	})
	var ids []string
	w.with = func(f *fake) {
		f.call = func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
			ids = append(ids, callid.From(ctx))
			return &mcp.CallToolResult{}, nil
		}
	}
	w.Apply([]manifest.Tool{tool("a")})
	for _, ctx := range []context.Context{t.Context(), callid.With(t.Context(), "given")} {
		if _, err := w.Call(ctx, peer.Call{Tool: "a", Args: json.RawMessage(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids) != 4 || ids[0] != ids[1] || ids[2] != "given" || ids[3] != "given" || ids[0] == "given" {
		t.Errorf("the ids of two attempts of two calls are %q", ids)
	}
}
