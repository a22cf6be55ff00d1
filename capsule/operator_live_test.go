package capsule_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/internal/testing/needs"
)

// byHand does as an operator what must be done within patience.
func (l *living) byHand(do func(*capsule.Capsule, context.Context) error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	if err := do(l.Capsule, ctx); err != nil {
		l.t.Fatal(err)
	}
}

// SPEC D11, J1: a stop by an operator leaves no process, whatever that takes; saves and
// calls start none, and the start by an operator has what was saved.
func TestStopsByHandWhateverItTakes(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for seconds")
	for _, script := range []string{"echo", "deaf", "forks-deaf"} {
		t.Run(script, func(t *testing.T) {
			l := live(t, script, capsuletest.Alone(t))
			first := l.call(capsuletest.Args{})
			l.byHand((*capsule.Capsule).Stop)
			if life := l.Life(); life.State != "STOPPED" || !life.Held || life.Pid != 0 {
				t.Errorf("it is %+v", life)
			}
			for _, pid := range append(first.Forked, first.Pid) {
				if alive(pid) {
					t.Errorf("process %d is alive", pid)
				}
			}
			capsuletest.Save(t, l.tool, "2")
			_, err := l.ask(capsuletest.Args{})
			wantFault(t, err, fault.NotReady, "STOPPED", "by an operator", "orla start capsule")
			if n := l.log.count(`"to":"STARTING"`); n != 1 {
				t.Errorf("it was started %d times", n)
			}
			l.byHand((*capsule.Capsule).Start)
			if l.Life().Held { // a busy machine may see the save just now, and reload
				t.Error("it is held after the start")
			}
			if second := l.call(capsuletest.Args{}); second.Code != "2" || second.Pid == first.Pid {
				t.Errorf("after the start %+v answers", second)
			}
			if capsuletest.Overlapped(l.tool) {
				t.Error("two processes were alive at once")
			}
		})
	}
}

// A stop by an operator waits for no start.
func TestStopsByHandDuringAStart(t *testing.T) {
	l := live(t, "silent", startupTimeout(time.Hour))
	eventually(t, "it has a process", func() bool { return l.Life().Pid != 0 })
	l.byHand((*capsule.Capsule).Stop)
	if life := l.Life(); life.State != "STOPPED" || !life.Held || life.Failures != 0 {
		t.Errorf("it is %+v", life)
	}
}

// SPEC D9: a start by an operator that fails says what the process said last.
func TestStartsByHandInVain(t *testing.T) {
	l := live(t, "exits-starting", capsuletest.Set("STDERR", "no module named numpy"), capsuletest.SetInt("CODE", 3), startsOnce)
	l.await("STOPPED")
	for _, do := range []func(context.Context) error{l.Start, l.Restart} {
		wantFault(t, do(t.Context()), fault.StartFailed, "code 3", "no module named numpy", "orla start capsule")
	}
	if life := l.Life(); life.Failures != 1 || life.Restarts != 2 {
		t.Errorf("it is %+v", life)
	}
}

// SPEC D9, L3: restarts by an operator under load lose no call.
func TestRestartsByHandUnderLoad(t *testing.T) {
	n := 20
	if testing.Short() {
		n = 5
	}
	l := live(t, "echo", capsuletest.Alone(t), unwatched)
	saves(t, l, n, func() {
		pid := l.Life().Pid
		l.byHand((*capsule.Capsule).Restart)
		if life := l.Life(); life.State != "READY" || life.Pid == pid {
			t.Errorf("after the restart it is %+v", life)
		}
	})
}

// SPEC J1: a stop by an operator is kept for the next Orla, which begins without a
// process and is told so by a file.
func TestStaysStoppedByHand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "held")
	tool := capsuletest.Tool(t, "echo", capsuletest.Quick)
	hold := func(o *capsule.Options) { o.Holds = records.NewHolds(dir) }
	l := serve(t, tool, hold)
	l.call(capsuletest.Args{})
	l.byHand((*capsule.Capsule).Stop)
	l.stop()
	if err := l.Start(t.Context()); !errors.Is(err, peer.ErrGone) {
		t.Errorf("error %v of one that is not served", err)
	}
	if err := l.Stop(t.Context()); !errors.Is(err, peer.ErrGone) {
		t.Errorf("error %v of one that is not served", err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("the folder has %v, %v", files, err)
	}

	tool.Description = "another"
	l = serve(t, tool, hold)
	l.await("STOPPED")
	_, err = l.ask(capsuletest.Args{})
	wantFault(t, err, fault.NotReady, "by an operator")
	l.logged(`"from":"CREATED"`, `"to":"STOPPED"`, "stopped by an operator")
	if l.log.has(`"to":"STARTING"`) {
		t.Error("it did not begin as it was left")
	}
	l.byHand((*capsule.Capsule).Start)
	l.stop()

	l = serve(t, tool, hold)
	l.call(capsuletest.Args{})
}
