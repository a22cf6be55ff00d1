package mcpbridge_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// cursed is a log over whose first line with a message Orla panics.
type cursed struct {
	slog.Handler
	message string
	lifted  *atomic.Bool
}

func (c cursed) Enabled(context.Context, slog.Level) bool { return true }

func (c cursed) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == c.message && !c.lifted.Swap(true) {
		panic("for the test")
	}
	return c.Handler.Handle(ctx, r)
}

// curse returns a change of a world whose log is cursed, and whether it has panicked.
func curse(message string) (change func(*mcpbridge.Options), lifted *atomic.Bool) {
	lifted = &atomic.Bool{}
	return func(o *mcpbridge.Options) { o.Log = slog.New(cursed{o.Log.Handler(), message, lifted}) }, lifted
}

// SPEC F2: a panic beside a call on stdio, where no server of the library's recovers,
// ends neither Orla nor the connection.
func TestF2APanicBesideACallOnStdioEndsNothing(t *testing.T) {
	change, lifted := curse("call")
	w := newWorld(t, change)
	w.set(tool("echo"))
	p := w.stdio(t, maxLine)
	p.open(t)
	for id := range 3 {
		p.write(t, call(id+1, "echo")+"\n")
		if r := p.next(t); r.failed {
			t.Errorf("call %d: %s", id, r.raw)
		}
	}
	if !lifted.Load() {
		t.Error("nothing has panicked")
	}
	eventually(t, "the room is free again", func() bool { return w.bridge.Held() == 0 })
}

// SPEC F2: a panic over a line ends that one connection, which has given back by then what the line held.
func TestF2APanicOverALineEndsItsConnectionAlone(t *testing.T) {
	change, lifted := curse("malformed message")
	w := newWorld(t, change)
	f := w.front(t, httpfront.Settings{})
	free := w.bridge.FreeForRequests()
	p := w.stdio(t, maxLine)
	p.open(t)
	p.write(t, "{"+strings.Repeat("x", 64<<10)+"\n")
	if p.scan() {
		t.Errorf("the connection goes on: %s", p.out.Text())
	}
	t.Logf("ServeStdio: %v", <-p.ended)
	if !lifted.Load() {
		t.Error("nothing has panicked")
	}
	if log := w.log.String(); !strings.Contains(log, "panic in a goroutine") || !strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the log lacks the panic: %s", log)
	}
	if now := w.bridge.FreeForRequests(); now != free {
		t.Errorf("%d bytes are still held", free-now)
	}
	if r := f.post(t, call(1, "echo"), "Mcp-Session-Id", f.initialize(t)); r.failed {
		t.Errorf("another client's call: %s", r.raw)
	}
}
