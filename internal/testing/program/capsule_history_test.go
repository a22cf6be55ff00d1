package program

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC I3, D1: from the log alone each capsule's history can be told: every
// move is one that can be, follows on the last, says why, and how long the last
// state lasted. Here many things happen to several capsules.
func TestI3TheLogTellsEveryHistory(t *testing.T) {
	t.Parallel()
	tools, gate := t.TempDir(), newGate(t)
	files := func(text string) map[string]string { return map[string]string{"answer.py": text} }
	packs := map[string]*pack{
		"steady":   newPack(t, tools, "steady", "", files(says("'ok'"))),
		"edited":   newPack(t, tools, "edited", "", files(says("'ok'"))),
		"killed":   newPack(t, tools, "killed", atOnce, files(says("'ok'"))),
		"hopeless": newPack(t, tools, "hopeless", "restart: {initial_ms: 1, max_ms: 1, max_failures: 3}", files("raise SystemExit(7)\n")),
		"lazy":     newPack(t, tools, "lazy", "start: lazy\nidle_timeout: 100ms", files(says("'ok'"))),
		"slow":     newPack(t, tools, "slow", "startup_timeout_ms: 600000", files(gated(gate))),
		"gone":     newPack(t, tools, "gone", "hot_load: {watch: []}", files(says("'ok'"))),
	}
	o := serveCapsules(t, tools, "")
	for _, name := range []string{"steady", "edited", "killed", "gone"} {
		o.waitLog("state", is(name, "READY"))
	}
	log := o.follow()
	packs["edited"].save("answer.py", says("'ok, too'"))
	log.next("state", is("edited", "RELOADING", "answer.py changed"))
	ready := log.next("state", is("edited", "READY"))
	if err := syscall.Kill(pid(ready), syscall.SIGTERM); err != nil { // asked by nobody: a crash
		t.Fatal(err)
	}
	log.next("state", is("edited", "CRASHED", "SIGTERM"))
	packs["edited"].manifest("timeout: 8s", "mcp: {input_schema: {type: object}}")
	log.next("state", is("edited", "STOPPED"))
	log.next("state", is("edited", "READY"))
	o.mustCall("lazy")
	o.waitLog("state", is("lazy", "STOPPED", "no call for 100ms"))
	o.waitLog("state", is("hopeless", "STOPPED", "3 failures in a row"))
	for range 5 {
		steps := o.histories()["killed"]
		if err := syscall.Kill(steps[len(steps)-1].pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		crashes := len(steps)
		testkit.Eventually(t, "it is back", func() bool {
			steps := o.histories()["killed"]
			return len(steps) > crashes && steps[len(steps)-1].to == "READY"
		})
	}
	packs["slow"].save("answer.py", says("'quick now'")) // during its start: once more afterwards
	open(t, gate)
	o.waitLog("state", is("slow", "READY"))
	o.waitLog("state", is("slow", "RELOADING"))
	packs["hopeless"].save("answer.py", says("'hope'"))
	o.waitLog("state", is("hopeless", "READY"))
	if err := os.RemoveAll(filepath.Join(tools, "gone")); err != nil {
		t.Fatal(err)
	}
	o.waitLog("state", is("gone", "STOPPED"))
	if a, err := o.call("steady", "{}"); err != nil || a.Result == nil || a.Result.IsError {
		t.Errorf("steady: %+v, %v", a, err)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	all := o.checkHistories()
	for name := range packs {
		steps := all[name]
		if len(steps) == 0 || steps[len(steps)-1].to != "STOPPED" {
			t.Errorf("the history of %s does not end in STOPPED: %+v", name, steps)
			continue
		}
		process := 0
		for i, s := range steps {
			if i > 0 && s.from == steps[i-1].to {
				const slack = 50 * time.Millisecond // a log line is written a little after its move
				if lasted := s.at.Sub(steps[i-1].at); (lasted - s.lasted).Abs() > slack {
					t.Logf("%s: %s lasted %s by the times of the lines, and %s by lasted_ms", name, s.from, lasted, s.lasted)
				}
			}
			switch s.to {
			case "READY":
				if s.pid == 0 || s.pid == process {
					t.Errorf("%s is READY as process %d after %d", name, s.pid, process)
				}
				process = s.pid
			case "RELOADING", "CRASHED":
				if s.from == "READY" && s.pid != process {
					t.Errorf("%s: %s is about process %d, not %d", name, s.to, s.pid, process)
				}
			}
		}
	}
	shape := func(name string) string {
		var states []string
		for _, s := range all[name] {
			states = append(states, s.to)
		}
		return strings.Join(states, " ")
	}
	for name, want := range map[string]string{
		"steady":   "STARTING READY STOPPING STOPPED",
		"gone":     "STARTING READY STOPPING STOPPED",
		"lazy":     "STARTING READY STOPPING STOPPED",
		"killed":   "STARTING READY " + strings.Repeat("CRASHED STARTING READY ", 5) + "STOPPING STOPPED",
		"hopeless": strings.Repeat("STARTING CRASHED ", 3) + "STOPPED STARTING READY STOPPING STOPPED",
	} {
		if got := shape(name); got != want {
			t.Errorf("%s went through %s; want %s", name, got, want)
		}
	}
}
