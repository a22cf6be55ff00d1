package capsule_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// unwatched leaves it to the test to reload.
func unwatched(tool *manifest.Tool) { tool.Runtime.HotLoad.Watch = nil }

// newer waits for a process that is READY and is not that of pid.
func (l *living) newer(pid int) int {
	l.t.Helper()
	var now int
	eventually(l.t, "a new process is READY", func() bool {
		life := l.Life()
		now = life.Pid
		return life.State == "READY" && now != pid
	})
	return now
}

// saves is a series of saves that callers do not notice but by the code that
// answers them (SPEC E1, L3): no call fails, and what begins after the READY of a
// save is answered by what was saved. reload does what makes the capsule reload.
func saves(t *testing.T, l *living, n int, reload func()) {
	t.Helper()
	l.await("READY")
	pid := l.Life().Pid
	mostChildren := watchChildren(t)

	type ready struct {
		code int
		at   time.Time
	}
	var last atomic.Int64 // the code of the last save that is READY
	var readies []ready
	stop := l.soak(8)
	for code := 2; code <= n+1; code++ {
		capsuletest.Save(t, l.tool, strconv.Itoa(code))
		reload()
		pid = l.newer(pid)
		last.Store(int64(code))
		readies = append(readies, ready{code, time.Now()})
		eventually(t, "it has answered", func() bool { return l.Life().State == "READY" && l.Life().InFlight > 0 })
	}
	attempts := stop()

	for _, a := range attempts {
		if a.err != nil {
			t.Errorf("a call failed: %v", a.err)
			continue
		}
		want := 1
		for _, r := range readies {
			if a.begin.After(r.at) {
				want = r.code
			}
		}
		if code, err := strconv.Atoi(a.answer.Code); err != nil || code < want {
			t.Errorf("a call that began after the READY of save %d was answered by %q", want, a.answer.Code)
		}
	}
	if most := mostChildren(); len(most) != 1 {
		t.Errorf("processes %v were there at once", most)
	}
	if capsuletest.Overlapped(l.tool) {
		t.Error("two processes of the capsule were alive at once")
	}
	if life := l.Life(); life.Failures != 0 || life.Restarts != n {
		t.Errorf("%d failures and %d restarts after %d saves", life.Failures, life.Restarts, n)
	}
	t.Logf("%d calls during %d reloads", len(attempts), n)
}

// SPEC L3: reloads under load lose no call.
func TestReloadsUnderLoad(t *testing.T) {
	l := live(t, "echo", capsuletest.Alone(t), unwatched)
	saves(t, l, needs.Rounds(10, 20), func() { l.Reload("test") })
}

// SPEC E1, E2: a save is all it takes, as often as a person saves.
func TestSavesUnderLoad(t *testing.T) {
	l := live(t, "echo", capsuletest.Alone(t))
	saves(t, l, 8, func() {})
	l.logged("code.txt")
}

// SPEC D9, E4: a version that does not start leaves the capsule CRASHED, and the
// next save tries again.
func TestABrokenVersionIsMendedByTheNextSave(t *testing.T) {
	l := live(t, "echo", func(tool *manifest.Tool) {
		tool.Runtime.Restart.Initial, tool.Runtime.Restart.Max = time.Hour, time.Hour
	})
	l.call(capsuletest.Args{})
	capsuletest.Save(t, l.tool, capsuletest.Broken)
	l.await("CRASHED")
	capsuletest.Save(t, l.tool, "3")
	l.await("READY")
	if got := l.call(capsuletest.Args{}); got.Code != "3" {
		t.Errorf("code %q answered, want 3", got.Code)
	}
}
