package program

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// atOnce are restarts without a noticeable pause and without a limit.
const atOnce = "restart: {initial_ms: 1, max_ms: 1, max_failures: 0}"

// SPEC D9: kill -9 of a capsule fails the calls in flight, as retryable
// crashes, and no other.
func TestD9KillingACapsuleFailsOnlyCallsInFlight(t *testing.T) {
	t.Parallel()
	kills := needs.Rounds(10, 12)
	tools := t.TempDir()
	newPack(t, tools, "victim", atOnce, map[string]string{"answer.py": says("'ok'")})
	o := serveCapsules(t, tools, "")
	log := o.follow()

	type failure struct {
		began, ended time.Time
		text         string
	}
	var mu sync.Mutex // guards failures
	var failures []failure
	var calls atomic.Int64
	stop := make(chan struct{})
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				began := time.Now()
				a, err := o.call("victim", "{}")
				calls.Add(1)
				switch {
				case err != nil || a.Result == nil:
					t.Errorf("a call failed otherwise: %v %+v", err, a)
				case a.Result.IsError:
					if a.Result.Meta["tool_code"] != "crashed" || a.Result.Meta["retryable"] != true {
						t.Errorf("a failure that is not a retryable crash: %+v", a.Result)
					}
					mu.Lock()
					failures = append(failures, failure{began, time.Now(), a.Result.Content[0].Text})
					mu.Unlock()
				}
			}
		})
	}
	type window struct{ from, to time.Time }
	var windows []window
	for range kills {
		ready := log.next("state", is("victim", "READY"))
		before := calls.Load()
		testkit.Eventually(t, "calls go on", func() bool { return calls.Load() > before })
		from := time.Now()
		if err := syscall.Kill(pid(ready), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		crashed := log.next("state", is("victim", "CRASHED", "killed by SIGKILL"))
		windows = append(windows, window{from, o.timeOf(crashed)})
	}
	close(stop)
	workers.Wait()
	for _, f := range failures {
		inFlight := false
		for _, w := range windows {
			if !f.began.After(w.to) && !f.ended.Before(w.from) {
				inFlight = true
			}
		}
		if !inFlight {
			t.Errorf("a call failed that was not in flight at a kill: %s", f.text)
		}
		if !strings.Contains(f.text, "killed by SIGKILL") {
			t.Errorf("the error does not name the exit: %s", f.text)
		}
	}
	t.Logf("%d calls over %d kills, %d failed", calls.Load(), kills, len(failures))
}

// SPEC D9, F2: ten capsules that crash again and again neither fail nor burn
// what is beside them.
func TestD9CrashLoopsHarmNobodyElse(t *testing.T) {
	t.Parallel()
	needs.Time(t, "starts many capsules")
	const loops = 10
	starts := needs.Rounds(10, 30)
	tools := t.TempDir()
	for i := range loops {
		newPack(t, tools, fmt.Sprintf("bad%d", i), "restart: {initial_ms: 100, max_ms: 200, max_failures: 0}",
			map[string]string{"answer.py": "raise SystemExit(1)\n"})
	}
	newPack(t, tools, "good", "", map[string]string{"answer.py": says("str(os.getpid())")})
	o := serveCapsules(t, tools, "")
	log := o.follow()
	process := o.mustCall("good")
	began := cpu(t, o.cmd.Process.Pid)
	for range starts {
		crash := log.next("state", func(l map[string]any) bool { return l["to"] == "CRASHED" })
		if pause, _ := crash["next_start_ms"].(float64); pause < 100 || pause > 240 {
			t.Errorf("the next start is due in %v ms: %v", pause, crash)
		}
		if got := o.mustCall("good"); got != process {
			t.Errorf("the good capsule was process %s and is %s", process, got)
		}
	}
	spent := cpu(t, o.cmd.Process.Pid) - began
	t.Logf("Orla spent %s on %d crashes and calls", spent, starts)
	if most := time.Duration(starts) * 30 * time.Millisecond; spent > most {
		t.Errorf("Orla spent %s; want at most %s", spent, most)
	}
}

// cpu is the time that a process itself has computed.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	total := 0
	for _, field := range fields[11:13] { // utime and stime, in ticks of 10 ms
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	return time.Duration(total) * 10 * time.Millisecond
}

// SPEC F3: reloads, crashes and calls leave descriptors, goroutines and memory
// where they were.
func TestF3CapsulesLeakNothing(t *testing.T) {
	t.Parallel()
	needs.Time(t, "crashes many capsules")
	const capsules = 5
	rounds := needs.Rounds(3, 9) // a goroutine of each crash, or of each reload, would be found
	tools := t.TempDir()
	var packs []*pack
	for i := range capsules {
		packs = append(packs, newPack(t, tools, fmt.Sprintf("c%d", i), atOnce, map[string]string{"answer.py": says("'ok'")}))
	}
	o := serveCapsules(t, tools, "")
	// A round is a crash, a save, a new manifest and calls of each capsule.
	turns := 0
	round := func(n int) {
		var all sync.WaitGroup
		for range n {
			turns++
			turn := turns
			for _, p := range packs {
				all.Go(func() {
					log := o.follow()
					log.seen = o.lineCount()
					call := o.plain(p.name)
					for range 5 {
						if _, err := call(); err != nil {
							t.Errorf("call: %v", err)
						}
					}
					switch turn % 3 {
					case 0:
						for _, process := range p.pids() {
							_ = syscall.Kill(process, syscall.SIGKILL) // it may be over
						}
						log.next("state", is(p.name, "CRASHED"))
					case 1:
						p.save(fmt.Sprintf("file%d.py", turn), "pass\n")
						log.next("state", is(p.name, "RELOADING"))
					case 2:
						p.manifest(atOnce+fmt.Sprintf("\ntimeout: %ds", 10+turn%7), "mcp: {input_schema: {type: object}}")
						log.next("state", is(p.name, "STOPPED"))
					}
					log.next("state", is(p.name, "READY"))
				})
			}
			all.Wait()
		}
	}
	round(6)
	o.staysFlat(4, func() { round(rounds) })
}

// lineCount is how many lines the log has.
func (o *running) lineCount() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.lines)
}
