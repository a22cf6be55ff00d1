package mcpbridge_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/mcpbridge"
)

// cursed is a log over whose first line of a call Orla panics.
type cursed struct {
	slog.Handler
	lifted *atomic.Bool
}

func (c cursed) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "call" && !c.lifted.Swap(true) {
		panic("for the test")
	}
	return c.Handler.Handle(ctx, r)
}

// SPEC F2: a panic beside a call on stdio, where no server of the library's recovers,
// ends neither Orla nor the connection.
func TestC15APanicBesideACallOnStdioEndsNothing(t *testing.T) {
	var lifted atomic.Bool
	w := newWorld(t, func(o *mcpbridge.Options) { o.Log = slog.New(cursed{o.Log.Handler(), &lifted}) })
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
