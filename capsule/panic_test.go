package capsule_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
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

// SPEC D7b, F2: a panic while a new process takes over leaves neither process running.
func TestF2APanicOverAReplacementLeavesNoProcess(t *testing.T) {
	log := new(journal)
	launcher, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(launcher.Close)
	var lifted atomic.Bool
	tool := capsuletest.Tool(t, "echo", capsuletest.Quick, startupTimeout(patience), func(m *manifest.Tool) { m.Runtime.HotLoad.Mode = manifest.HotLoadReplace })
	c, err := capsule.New(tool, capsule.Options{
		Launcher: launcher.Launcher(), Environ: environ.Clean(syscall.Environ()), Log: slog.New(cursedLog{slog.NewJSONHandler(log, nil), "replaced", &lifted}),
	})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		_ = c.Serve(t.Context())
	}()
	testkit.Eventually(t, "the capsule is READY", func() bool { return c.Life().State == "READY" })
	go func() { _ = c.Restart(t.Context()) }()
	if got := <-ended; got != "for the test" {
		t.Fatalf("Serve ends with %v", got)
	}
	started := regexp.MustCompile(`"msg":"started"[^\n]*"pid":(\d+)`).FindAllStringSubmatch(log.String(), -1)
	if len(started) != 2 {
		t.Fatalf("%d processes were started: %s", len(started), log)
	}
	for _, one := range started {
		pid, _ := strconv.Atoi(one[1])
		testkit.Eventually(t, "process "+one[1]+" is gone", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	}
}
