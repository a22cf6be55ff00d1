package supervisor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/thejerf/suture/v4"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// fake is a provider that lives and does what it is told.
type fake struct {
	tool  manifest.Tool
	call  func(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error)
	serve func(ctx context.Context) error
	runs  atomic.Int32
}

func (f *fake) Tools() []*mcp.Tool {
	return []*mcp.Tool{{Name: f.tool.Name, InputSchema: f.tool.InputSchema}}
}

func (f *fake) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	if f.call == nil {
		return peer.Answer{Result: &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: f.tool.Description}}}}, nil
	}
	res, err := f.call(ctx, call.Args)
	return peer.Answer{Result: res}, err
}

func (f *fake) String() string { return "fake " + f.tool.Name }

func (f *fake) Serve(ctx context.Context) error {
	f.runs.Add(1)
	if f.serve != nil {
		return f.serve(ctx)
	}
	<-ctx.Done()
	return ctx.Err()
}

// world is a supervisor with fakes.
type world struct {
	*supervisor.Supervisor
	made map[string]*fake // the newest of each name
	with func(*fake)      // changes a fake when it is built
}

func newWorld(change ...func(*supervisor.Options)) *world {
	w := &world{made: map[string]*fake{}}
	opts := supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{
			manifest.Simple: func(t manifest.Tool) (supervisor.Provider, error) {
				if t.Description == "broken" {
					return nil, errors.New("cannot be built")
				}
				f := &fake{tool: t}
				if w.with != nil {
					w.with(f)
				}
				w.made[t.Name] = f
				return f, nil
			},
		},
		Log: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&opts)
	}
	w.Supervisor = supervisor.New(opts)
	return w
}

func tool(name string, change ...func(*manifest.Tool)) manifest.Tool {
	t := manifest.Tool{Name: name, Kind: manifest.Simple, InputSchema: json.RawMessage(`{"type":"object"}`)}
	for _, c := range change {
		c(&t)
	}
	return t
}

func names(c *supervisor.Catalog) string {
	var all []string
	for _, t := range c.Tools {
		all = append(all, t.Name)
	}
	return strings.Join(all, " ")
}

func TestH2ApplyIsADifference(t *testing.T) {
	w := newWorld()
	diff := w.Apply([]manifest.Tool{tool("b"), tool("a"), tool("c")})
	if !slices.Equal(diff.Added, []string{"a", "b", "c"}) || names(w.Catalog()) != "a b c" {
		t.Fatalf("first: %+v, catalog %q", diff, names(w.Catalog()))
	}
	kept, before := w.made["a"], w.Catalog()
	diff = w.Apply([]manifest.Tool{tool("a"), tool("b", func(t *manifest.Tool) { t.Description = "new" }), tool("d")})
	if !slices.Equal(diff.Added, []string{"d"}) || !slices.Equal(diff.Changed, []string{"b"}) ||
		!slices.Equal(diff.Removed, []string{"c"}) || diff.Kept != 1 {
		t.Errorf("second: %+v", diff)
	}
	if w.made["a"] != kept {
		t.Error("what did not change was built anew")
	}
	select {
	case <-before.Changed:
	default:
		t.Error("the old catalog does not know that it is old")
	}
	now := w.Catalog()
	if diff = w.Apply([]manifest.Tool{tool("a"), tool("b", func(t *manifest.Tool) { t.Description = "new" }), tool("d")}); !diff.Empty() {
		t.Errorf("third: %+v; want nothing", diff)
	}
	if w.Catalog() != now {
		t.Error("nothing changed, and the catalog did")
	}
}

func TestOneBadManifestLeavesTheRestAlone(t *testing.T) {
	w := newWorld()
	diff := w.Apply([]manifest.Tool{
		tool("good"),
		tool("broken", func(t *manifest.Tool) { t.Description = "broken" }),
		tool("capsule", func(t *manifest.Tool) { t.Kind = manifest.Capsule }),
		tool("schema", func(t *manifest.Tool) { t.InputSchema = json.RawMessage(`{"type":"object","properties":5}`) }),
	})
	if names(w.Catalog()) != "good" || len(diff.Failed) != 3 {
		t.Errorf("catalog %q, failed %v", names(w.Catalog()), diff.Failed)
	}
}

func TestUnknownToolIsNamed(t *testing.T) {
	_, err := newWorld().Call(t.Context(), peer.Call{Tool: "none"})
	if !errors.Is(err, supervisor.ErrUnknownTool) || fault.CodeOf(err) != fault.UnsupportedTool {
		t.Errorf("error = %v", err)
	}
}

func TestG4ArgumentsAreCheckedBeforeAnythingRuns(t *testing.T) {
	w := newWorld()
	w.with = func(f *fake) {
		f.call = func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
			t.Error("the provider was called")
			return nil, nil
		}
	}
	w.Apply([]manifest.Tool{tool("a", func(t *manifest.Tool) {
		t.InputSchema = json.RawMessage(`{"type":"object","properties":{"count":{"type":"integer"}},"required":["count"]}`)
	})})
	for _, args := range []string{`{"count":"x"}`, `{}`, `[]`, ``} {
		_, err := w.Call(t.Context(), peer.Call{Tool: "a", Args: json.RawMessage(args)})
		if fault.CodeOf(err) != fault.InvalidInput || args == `{"count":"x"}` && !strings.Contains(err.Error(), "count") {
			t.Errorf("%s: error = %v; want invalid_input that names count", args, err)
		}
	}
}

func TestAdmitMayRefuse(t *testing.T) {
	w := newWorld(func(o *supervisor.Options) {
		o.Admit = func(_ context.Context, c peer.Call, _ *rules.Target) (supervisor.Admitted, error) {
			return supervisor.Admitted{}, fault.New(fault.PermissionDenied, "%s may not", c.Caller)
		}
	})
	w.Apply([]manifest.Tool{tool("a")})
	_, err := w.Call(t.Context(), peer.Call{Tool: "a", Caller: "eve"})
	if fault.CodeOf(err) != fault.PermissionDenied || !strings.Contains(err.Error(), "eve") {
		t.Errorf("error = %v", err)
	}
}

// untilDone answers a call when its context ends, with the cause.
func untilDone(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestDeadlineIsTheToolsAndHasACause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.with = func(f *fake) { f.call = untilDone }
		w.Apply([]manifest.Tool{tool("a", func(t *manifest.Tool) { t.Run.Timeout = time.Hour })})
		began := time.Now()
		_, err := w.Call(t.Context(), peer.Call{Tool: "a"})
		if time.Since(began) != time.Hour || fault.CodeOf(err) != fault.Timeout || !strings.Contains(err.Error(), "1h0m0s") {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// SPEC G3: a removed tool's running call ends normally.
func TestG3RemovalLeavesARunningCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		proceed := make(chan struct{})
		w.with = func(f *fake) {
			f.call = func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
				select {
				case <-proceed:
					return &mcp.CallToolResult{}, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}
		w.Apply([]manifest.Tool{tool("a")})
		done := make(chan error, 1)
		go func() {
			_, err := w.Call(t.Context(), peer.Call{Tool: "a"})
			done <- err
		}()
		synctest.Wait()
		w.Apply(nil)
		if _, err := w.Call(t.Context(), peer.Call{Tool: "a"}); !errors.Is(err, supervisor.ErrUnknownTool) {
			t.Errorf("a removed tool answers: %v", err)
		}
		close(proceed)
		if err := <-done; err != nil {
			t.Errorf("the running call failed: %v", err)
		}
	})
}

// SPEC H4: no new calls; those in flight may end within the grace.
func TestH4Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.with = func(f *fake) {
			if f.tool.Name == "quick" {
				f.call = func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
					time.Sleep(3 * time.Second) // in a bubble
					return &mcp.CallToolResult{}, nil
				}
			} else {
				f.call = untilDone
			}
		}
		w.Apply([]manifest.Tool{tool("quick"), tool("endless")})
		errs := map[string]chan error{"quick": make(chan error, 1), "endless": make(chan error, 1)}
		for name, c := range errs {
			go func() {
				_, err := w.Call(t.Context(), peer.Call{Tool: name})
				c <- err
			}()
		}
		synctest.Wait()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() {
			time.Sleep(time.Second) // in a bubble
			if _, err := w.Call(t.Context(), peer.Call{Tool: "quick"}); fault.CodeOf(err) != fault.NotReady {
				t.Errorf("a new call while draining: %v; want not_ready", err)
			}
		}()
		w.Drain(ctx)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("drained after %s; want the whole grace", took)
		}
		if err := <-errs["quick"]; err != nil {
			t.Errorf("the quick call failed: %v", err)
		}
		if err := <-errs["endless"]; fault.CodeOf(err) != fault.NotReady {
			t.Errorf("the endless call: %v; want not_ready", err)
		}
	})
}

// SPEC H4: whoever was told that Orla stops gets no new call through, also
// while nobody waits for the others yet.
func TestH4RefuseIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.with = func(f *fake) { f.call = untilDone }
		w.Apply([]manifest.Tool{tool("endless")})
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_, err := w.Call(ctx, peer.Call{Tool: "endless"})
			done <- err
		}()
		synctest.Wait()
		for range 2 {
			if n := w.Refuse(); n != 1 {
				t.Errorf("%d calls in flight; want 1", n)
			}
		}
		if _, err := w.Call(t.Context(), peer.Call{Tool: "endless"}); fault.CodeOf(err) != fault.NotReady {
			t.Errorf("a new call: %v; want not_ready", err)
		}
		cancel()
		if err := <-done; err == nil {
			t.Error("the call that was given up has an answer")
		}
		w.Drain(t.Context())
		if n := w.Refuse(); n != 0 {
			t.Errorf("%d calls in flight; want none", n)
		}
	})
}

// SPEC F1: one service per living tool, for as long as it is listed.
func TestF1ServicesLiveAsLongAsTheyAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Serve(ctx) }()
		gone := make(chan string, 3)
		w.with = func(f *fake) {
			f.serve = func(ctx context.Context) error {
				<-ctx.Done()
				gone <- f.tool.Name
				return ctx.Err()
			}
		}
		w.Apply([]manifest.Tool{tool("a"), tool("b")})
		synctest.Wait()
		if w.made["a"].runs.Load() != 1 || w.made["b"].runs.Load() != 1 {
			t.Error("a living tool does not run")
		}
		w.Apply([]manifest.Tool{tool("b")})
		if name := <-gone; name != "a" {
			t.Errorf("%s was stopped; want a", name)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the tree ended with %v", err)
		}
		if name := <-gone; name != "b" {
			t.Errorf("%s was stopped; want b", name)
		}
	})
}

// SPEC F2: a panic in one part is contained, and its service comes back.
func TestF2APanicTakesNobodyElseAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.with = func(f *fake) {
			if f.tool.Name != "bad" {
				return
			}
			f.serve = func(ctx context.Context) error {
				if f.runs.Load() == 1 {
					panic("for the test")
				}
				<-ctx.Done()
				return ctx.Err()
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Serve(ctx) }()
		w.Apply([]manifest.Tool{tool("bad"), tool("good")})
		time.Sleep(time.Minute) // in a bubble
		if bad, good := w.made["bad"].runs.Load(), w.made["good"].runs.Load(); bad != 2 || good != 1 {
			t.Errorf("bad ran %d times, good %d; want 2 and 1", bad, good)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the tree ended with %v", err)
		}
	})
}

// SPEC-TOOLS 6: what Wrap puts around a tool's attempts is asked for each call,
// with the manifest and the tool, and each attempt has the timeout anew.
func TestWrapMakesTheAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(func(o *supervisor.Options) {
			o.Wrap = func(of manifest.Tool, listed *mcp.Tool, next supervisor.Attempt) supervisor.Attempt {
				return func(ctx context.Context, call peer.Call) (peer.Answer, error) {
					if of.Name != "a" || listed.Name != "a" || call.Attempt != 1 || call.Caller != "eve" || call.Task != "job" {
						t.Errorf("an attempt of %q, %q: %+v", of.Name, listed.Name, call)
					}
					if _, err := next(ctx, call); fault.CodeOf(err) != fault.Timeout || ctx.Err() != nil {
						t.Errorf("the first attempt gave %v; the call: %v", err, ctx.Err())
					}
					return next(ctx, call)
				}
			}
		})
		began := time.Now()
		var attempts int
		answer := func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
			if attempts++; attempts == 1 {
				<-ctx.Done()
				return nil, fault.From(context.Cause(ctx))
			}
			deadline, _ := ctx.Deadline()
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: deadline.Sub(began).String()}}}, nil
		}
		w.with = func(f *fake) { f.call, f.serve = answer, nil }
		w.Apply([]manifest.Tool{tool("a", func(t *manifest.Tool) { t.Run.Timeout = time.Second })})
		a, err := w.Call(t.Context(), peer.Call{Tool: "a", Caller: "eve", Task: "job"})
		if err != nil || a.Result.Content[0].(*mcp.TextContent).Text != "2s" {
			t.Errorf("got %+v, %v; want a second attempt with a second of its own", a.Result, err)
		}
	})
}

func TestManyCallsWhileToolsComeAndGo(t *testing.T) {
	w := newWorld()
	stop := make(chan struct{})
	applied := make(chan struct{})
	go func() {
		defer close(applied)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				w.Apply([]manifest.Tool{tool("a"), tool(fmt.Sprint("t", i%7)), tool("b", func(t *manifest.Tool) { t.Description = fmt.Sprint(i) })})
			}
		}
	}()
	w.Apply([]manifest.Tool{tool("a")})
	for range 2000 {
		if _, err := w.Call(t.Context(), peer.Call{Tool: "a"}); err != nil {
			t.Errorf("a call of a tool that stays: %v", err)
			break
		}
	}
	close(stop)
	<-applied
}

var _ suture.Service = (*fake)(nil)
