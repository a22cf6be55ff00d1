package capsule_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/testing/capsuletest"
	"github.com/orla-project/orla/internal/testing/needs"
)

// procStat returns a process's state letter and parent; "" if there is none.
func procStat(pid int) (state string, parent int) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// children returns the processes that a thread of this one has forked: from the
// moment of the fork, and until they are reaped.
func children(task string) (pids []int) {
	list, _ := os.ReadFile(task) // the thread may have ended
	for field := range strings.FieldsSeq(string(list)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// watchChildren looks at /proc without pause until the returned function is
// called, which returns the most children that were there at once. There must be
// one when it begins: all are forked by the thread of the launcher that has it.
func watchChildren(t *testing.T) (stop func() (most []int)) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil || len(tasks) == 0 {
		needs.Missing(t, "the system does not list children: %v", err)
	}
	i := slices.IndexFunc(tasks, func(task string) bool { return len(children(task)) > 0 })
	if i < 0 {
		t.Fatal("there are no children")
	}
	done, over := make(chan struct{}), make(chan []int)
	go func() {
		var most []int
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			// A list is not read in one go: what is there twice was there.
			if now := children(tasks[i]); len(now) > len(most) && slices.Equal(now, children(tasks[i])) {
				most = now
			}
			select {
			case <-tick.C:
			case <-done:
				over <- most
				return
			}
		}
	}()
	return func() []int {
		close(done)
		return <-over
	}
}

// attempt is one call of a soak, as its caller saw it.
type attempt struct {
	begin, end time.Time
	answer     capsuletest.Answer
	err        error
}

// soak has callers call without pause until the returned function is called,
// which returns all that they did.
func (l *living) soak(callers int) (stop func() []attempt) {
	done := make(chan struct{})
	all := make([][]attempt, callers)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				a := attempt{begin: time.Now()}
				res, err := l.ask(capsuletest.Args{})
				a.end, a.err = time.Now(), err
				if err == nil {
					a.answer = capsuletest.Read(l.t, textOf(l.t, res))
				}
				all[i] = append(all[i], a)
			}
		})
	}
	return func() []attempt {
		close(done)
		wg.Wait()
		return slices.Concat(all...)
	}
}

// SPEC D2, D9, D10, F3: many kills under load. Only calls in flight at a
// kill fail, they say that they may be tried again, and there are never two
// processes at once.
func TestKill9UnderLoad(t *testing.T) {
	kills := needs.Rounds(10, 20)
	l := live(t, "echo", capsuletest.Alone(t))
	l.await("READY")
	mostChildren := watchChildren(t)
	stop := l.soak(8)

	// For each kill, the time in which the capsule was not what it seemed to be.
	type outage struct{ killed, noticed time.Time }
	var outages []outage
	for range kills {
		var pid int
		answered := l.Life().Calls
		eventually(t, "a process is READY and has answered", func() bool {
			life := l.Life()
			pid = life.Pid
			return life.State == "READY" && life.InFlight > 0 && life.Calls > answered+8
		})
		o := outage{killed: time.Now()}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kill is noticed", func() bool { life := l.Life(); return life.State != "READY" || life.Pid != pid })
		o.noticed = time.Now()
		outages = append(outages, o)
	}
	l.await("READY")
	l.call(capsuletest.Args{})
	attempts := stop()

	failed, unnamed, wrong := 0, 0, map[string]int{}
	for _, a := range attempts {
		if a.err == nil {
			continue
		}
		failed++
		switch f := fault.From(a.err); {
		case f.Code != fault.Crashed || !f.Retryable():
			wrong[a.err.Error()]++
		case !strings.Contains(f.Reason, "SIGKILL"):
			unnamed++
		}
		if !slices.ContainsFunc(outages, func(o outage) bool { return a.begin.Before(o.noticed) && a.end.After(o.killed) }) {
			t.Errorf("a call failed that was not in flight at a kill: %v", a.err)
		}
	}
	for text, n := range wrong {
		t.Errorf("%d calls failed with %s, want crashed, retryable", n, text)
	}
	// On a busy machine the end of stdout may be seen long before the exit.
	if unnamed > failed/10 {
		t.Errorf("%d of %d failures do not name the signal", unnamed, failed)
	}
	if failed > 8*kills {
		t.Errorf("%d calls failed at %d kills with 8 callers", failed, kills)
	}
	if most := mostChildren(); len(most) != 1 {
		t.Errorf("processes %v were there at once", most)
	}
	if capsuletest.Overlapped(l.tool) {
		t.Error("two processes of the capsule were alive at once")
	}
	if got := l.Life().Restarts; got != kills {
		t.Errorf("%d restarts after %d kills", got, kills)
	}
	t.Logf("%d calls, %d failed, at %d kills", len(attempts), failed, kills)
}
