package capsule_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/testing/capsuletest"
)

// cursed is a client that panics when it is asked.
type cursed struct{ client }

func (*cursed) Ask(context.Context, string, json.RawMessage) (json.RawMessage, error) {
	panic("for the test")
}

// TestF2APanicOverAQuestionIsAnswered: the capsule is told that its question failed, and
// its process serves on.
func TestF2APanicOverAQuestionIsAnswered(t *testing.T) {
	l := live(t, "echo")
	got := l.askFor(&cursed{}, capsuletest.Args{Ask: &capsuletest.Notice{Method: "roots/list"}})
	if !strings.Contains(string(got.Client), "-32603") {
		t.Errorf("the capsule got %s, want -32603", got.Client)
	}
	if log := l.log.String(); !strings.Contains(log, "panic in a goroutine") || !strings.Contains(log, "for the test") {
		t.Errorf("the log lacks the panic: %s", log)
	}
	l.call(capsuletest.Args{})
}

// cursedLog is a log over whose first line with a message Orla panics.
type cursedLog struct {
	slog.Handler
	message string
	lifted  *atomic.Bool
}

func (c cursedLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == c.message && !c.lifted.Swap(true) {
		panic("for the test")
	}
	return c.Handler.Handle(ctx, r)
}

// TestF2APanicOverWhatACapsulePrintsEndsItsProcessAlone: whichever of its streams it is
// over, the call in flight fails, and the capsule is started again.
func TestF2APanicOverWhatACapsulePrintsEndsItsProcessAlone(t *testing.T) {
	for name, of := range map[string]struct {
		message string
		args    capsuletest.Args
	}{
		"stdout": {"a capsule said hello once more; it is ignored", capsuletest.Args{Notify: []capsuletest.Notice{{Method: "orla.hello"}}, Mute: true}},
		"stderr": {"stderr", capsuletest.Args{Stderr: "a line", Mute: true}},
	} {
		t.Run(name, func(t *testing.T) {
			var lifted atomic.Bool
			l := serve(t, capsuletest.Tool(t, "echo", capsuletest.Quick, startupTimeout(patience)), func(o *capsule.Options) {
				o.Log = slog.New(cursedLog{o.Log.Handler(), of.message, &lifted})
			})
			if _, err := l.askWithin(patience, of.args); err == nil || !strings.Contains(err.Error(), "panic") {
				t.Errorf("the call in flight: %v", err)
			}
			l.logged("panic while handling a message of a capsule", "for the test", "ERROR")
			l.await("READY")
			l.call(capsuletest.Args{})
		})
	}
}
