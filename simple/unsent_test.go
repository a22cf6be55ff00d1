package simple_test

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/simple"
)

// SPEC-TOOLS 6.3: a failed call knows if a process was started for it: if not,
// it may be made again whatever it does.
func TestUnsentIsWhatNoProcessWasStartedFor(t *testing.T) {
	late := fault.New(fault.Timeout, "late")
	for name, test := range map[string]struct {
		tool   manifest.Tool
		change func(*simple.Options)
		args   string
		code   fault.Code
		unsent bool
	}{
		"a missing interpreter": {
			tool: script(t, "", func(t *manifest.Tool) { t.Interpreter = manifest.Interpreter{Name: "no-such-interpreter"} }),
			code: fault.UnsupportedTool, unsent: true,
		},
		"a file that is gone": {
			tool: script(t, "", func(t *manifest.Tool) { t.Path, t.Interpreter = t.Path+".gone", manifest.Interpreter{} }),
			code: fault.StartFailed, unsent: true,
		},
		"arguments that cannot be passed on": {tool: script(t, ""), args: `{"--x":1}`, code: fault.InvalidInput, unsent: true},
		"no place to run": {
			tool: script(t, ""), change: func(o *simple.Options) { o.Slots = simple.NewSlots(0) },
			code: fault.Timeout, unsent: true,
		},
		"a deadline": {tool: script(t, `: >"$0.begun"; exec sleep 100`), code: fault.Timeout},
		"an exit":    {tool: script(t, "exit 3"), code: fault.ExecutionFailed},
		"a signal":   {tool: script(t, "kill -9 $$"), code: fault.ExecutionFailed},
	} {
		t.Run(name, func(t *testing.T) {
			if test.change == nil {
				test.change = func(*simple.Options) {}
			}
			c := command(t, test.tool, test.change)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, late)
			defer cancel()
			if test.unsent && test.code == fault.Timeout {
				ctx, cancel = context.WithTimeoutCause(t.Context(), 50*time.Millisecond, late)
				defer cancel()
			}
			ctx, end := context.WithCancelCause(ctx)
			defer end(nil)
			if test.args == "" {
				test.args = "{}"
			}
			done := make(chan error, 1)
			go func() {
				_, err := c.Call(ctx, peer.Call{Tool: "tool", Args: json.RawMessage(test.args)})
				done <- err
			}()
			if !test.unsent && test.code == fault.Timeout {
				testkit.Eventually(t, "the process runs", func() bool { _, err := os.Stat(test.tool.Path + ".begun"); return err == nil })
				end(late) // as a deadline ends it, however long the start took
			}
			if f := faultOf(t, <-done, test.code); f.Unsent != test.unsent {
				t.Errorf("unsent %t: %v", f.Unsent, f)
			}
		})
	}
}

// A call that leaves the queue has started nothing either.
func TestUnsentIsACallThatLeavesTheQueue(t *testing.T) {
	slots := simple.NewSlots(0)
	c := command(t, script(t, ""), func(o *simple.Options) { o.Slots = slots })
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(ctx, peer.Call{Tool: "tool"})
		done <- err
	}()
	for slots.Waiting() == 0 {
		runtime.Gosched()
	}
	leave()
	if f := faultOf(t, <-done, fault.Canceled); !f.Unsent {
		t.Errorf("got %v", f)
	}
}
