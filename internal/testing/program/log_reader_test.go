package program

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// chronicle is what a reader can tell of capsules from the log alone.
type chronicle struct {
	stays map[string][]stay // by capsule, oldest first
	lives map[string][]life
}

// stay is a time that a capsule spent in one state.
type stay struct {
	state, reason string
	pid           int
	since, from   time.Time // the move was not before the one, and not after the other, its line's time
}

// life is that of one process.
type life struct {
	pid   int
	ended bool
	exit  string
}

// read makes a chronicle of the logs of one Orla after the other.
func read(t *testing.T, orlas ...*running) *chronicle {
	t.Helper()
	c := &chronicle{stays: map[string][]stay{}, lives: map[string][]life{}}
	for _, o := range orlas {
		o.mu.Lock()
		for _, l := range o.lines {
			c.add(o, l)
		}
		o.mu.Unlock()
	}
	return c
}

func (c *chronicle) add(o *running, l map[string]any) {
	tool, _ := l["tool"].(string)
	reason, _ := l["reason"].(string)
	exit, _ := l["exit"].(string)
	to, _ := l["to"].(string)
	at := o.timeOf(l)
	switch l["msg"] {
	case "created":
		c.stays[tool] = append(c.stays[tool], stay{state: "CREATED", since: at, from: at})
	case "state":
		if tool != "" {
			ms, _ := l["lasted_ms"].(float64)
			c.stays[tool] = append(c.stays[tool], stay{to, reason, pid(l), c.moved(tool, at, time.Duration(ms)*time.Millisecond), at})
		}
	case "started":
		c.lives[tool] = append(c.lives[tool], life{pid: pid(l)})
	case "ended":
		for i, one := range c.lives[tool] {
			if one.pid == pid(l) {
				c.lives[tool][i] = life{pid(l), true, exit}
			}
		}
	}
}

// moved returns when a capsule left its last state at the earliest, which lasted
// that long, if a line at some moment says so. A busy machine writes the line later.
func (c *chronicle) moved(tool string, at time.Time, lasted time.Duration) time.Time {
	stays := c.stays[tool]
	if len(stays) == 0 {
		return at
	}
	moved := stays[len(stays)-1].since.Add(lasted)
	if moved.After(at) { // the line of the last move was late as well
		return at
	}
	return moved
}

// during returns what a capsule went through between two moments.
func (c *chronicle) during(tool string, from, to time.Time) []stay {
	var found []stay
	for i, s := range c.stays[tool] {
		ended := i+1 < len(c.stays[tool]) && c.stays[tool][i+1].from.Before(from)
		if !ended && !s.since.After(to) {
			found = append(found, s)
		}
	}
	return found
}

// seen is a capsule's state, or what answered a call, as it was seen from
// outside at some moment between two.
type seen struct {
	tool, state string
	pid         int // if it answered
	from, to    time.Time
}

// onlooker sees capsules from outside, for as long as the test goes on.
type onlooker struct {
	mu   sync.Mutex
	seen []seen
}

func (w *onlooker) saw(s seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, s)
}

// await waits until a capsule was seen in a state.
func (w *onlooker) await(t *testing.T, tool, state string) {
	t.Helper()
	testkit.Eventually(t, tool+" is seen as "+state, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return slices.ContainsFunc(w.seen, func(s seen) bool { return s.tool == tool && s.state == state })
	})
}

var stateMetric = regexp.MustCompile(`(?m)^orla_capsule_state\{state="([A-Z]+)",tool="([a-z]+)"\} 1$`)

// look reads the states of all capsules where machines do.
func (w *onlooker) look(o *running) error {
	from := time.Now()
	resp, err := http.Get(strings.TrimSuffix(o.url, "/mcp") + "/metrics")
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	for _, found := range stateMetric.FindAllSubmatch(text, -1) {
		w.saw(seen{tool: string(found[2]), state: string(found[1]), from: from, to: time.Now()})
	}
	return err
}

// ask calls a capsule, which answers with its process.
func (w *onlooker) ask(o *running, tool string) {
	from := time.Now()
	a, err := o.call(tool, "{}")
	if err != nil || a.Result == nil || a.Result.IsError || len(a.Result.Content) == 0 {
		return // it is down, or Orla is
	}
	if pid, err := strconv.Atoi(a.Result.Content[0].Text); err == nil {
		w.saw(seen{tool: tool, state: "READY", pid: pid, from: from, to: time.Now()})
	}
}

// watch looks and asks until the function that it returns is called.
func (w *onlooker) watch(o *running, tools ...string) (stop func()) {
	over := make(chan struct{})
	var watching sync.WaitGroup
	again := func(do func()) {
		watching.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond):
					do()
				}
			}
		})
	}
	again(func() { _ = w.look(o) }) // Orla may be over
	again(func() {
		for _, tool := range tools {
			w.ask(o, tool)
		}
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

// diary is an answer.py that answers with its process, ends when it is told to,
// and has written down each process of its own.
const diary = `import os

offers = []
with open(os.environ["LOCK"] + ".diary", "a") as book:
    book.write("%d\n" % os.getpid())


def answer(params):
    if params["arguments"].get("die"):
        os._exit(params["arguments"]["die"])
    return str(os.getpid())
`

// SPEC I3: whoever has nothing but the log can tell which state each capsule was
// in at any moment, why, and how each of its processes ended. Here that is held
// against what was seen from outside meanwhile: the metrics, the answers to
// calls, what the processes wrote down, and what was done to them; through a
// death of Orla itself.
func TestI3TheLogTellsWhatWasSeen(t *testing.T) {
	t.Parallel()
	needs.Time(t, "serves many capsules for a while")
	tools, state := t.TempDir(), t.TempDir()
	files := map[string]string{"answer.py": diary}
	packs := map[string]*pack{
		"crashes":  newPack(t, tools, "crashes", "restart: {initial_ms: 200, max_ms: 200}", files),
		"byhand":   newPack(t, tools, "byhand", "", files),
		"hopeless": newPack(t, tools, "hopeless", "restart: {initial_ms: 50, max_ms: 50, max_failures: 3}", files),
		"silent":   newPack(t, tools, "silent", "startup_timeout_ms: 2000\nrestart: {max_failures: 0}", files), // a busy machine may need another try,
		"comes":    newPack(t, tools, "comes", "hot_load: {watch: []}", files),
	}
	config := fmt.Sprintf("state_dir: %s\nsocket: %s\n", state, shortPath(t))
	o := serveCapsules(t, tools, config)
	for name := range packs {
		o.waitLog("state", is(name, "READY"))
	}
	var w onlooker
	stop := w.watch(o, "crashes", "byhand", "hopeless", "comes")
	exits := map[int]string{} // how processes ended that were told to
	log := o.follow()
	ready := func(name string) int {
		t.Helper()
		return pid(log.next("state", is(name, "READY")))
	}
	hand := func(o *running, args ...string) {
		t.Helper()
		cmd := exec.Command(o.cmd.Path, append(args, "--config", o.cmd.Args[2])...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("orla %s: %v\n%s", args, err, out)
		}
	}

	crashing := 0
	for _, s := range o.histories()["crashes"] {
		crashing = s.pid
	}
	for _, signal := range []struct {
		syscall.Signal
		name string
	}{{syscall.SIGKILL, "SIGKILL"}, {syscall.SIGSEGV, "SIGSEGV"}, {syscall.SIGTERM, "SIGTERM"}} {
		exits[crashing] = signal.name
		if err := syscall.Kill(crashing, signal.Signal); err != nil {
			t.Fatal(err)
		}
		log.next("state", is("crashes", "CRASHED", signal.name))
		crashing = ready("crashes")
	}
	exits[crashing] = "code 3"
	_, _ = o.call("crashes", `{"die": 3}`) // it fails
	log.next("state", is("crashes", "CRASHED", "code 3"))
	ready("crashes")
	packs["crashes"].save("answer.py", diary+"# saved\n")
	log.next("state", is("crashes", "RELOADING", "answer.py changed"))
	ready("crashes")

	hand(o, "stop", "byhand")
	log.next("state", is("byhand", "STOPPED", "by an operator"))
	w.await(t, "byhand", "STOPPED")
	o.signal(syscall.SIGHUP)
	log.next("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	hand(o, "start", "byhand")
	ready("byhand")
	hand(o, "restart", "byhand")
	ready("byhand")

	packs["hopeless"].save("answer.py", "raise SystemExit(7)\n")
	log.next("state", is("hopeless", "STOPPED", "3 failures in a row"))
	packs["hopeless"].save("answer.py", diary)
	ready("hopeless")
	packs["silent"].save("answer.py", "import sys\nsys.stdin.read()\n")
	log.next("state", is("silent", "CRASHED", "no orla.hello"))
	w.await(t, "silent", "CRASHED")
	w.await(t, "silent", "STARTING")
	packs["silent"].save("answer.py", diary)
	ready("silent")
	aside := filepath.Join(t.TempDir(), "comes")
	if err := os.Rename(packs["comes"].dir, aside); err != nil {
		t.Fatal(err)
	}
	log.next("state", is("comes", "STOPPED"))
	if err := os.Rename(aside, packs["comes"].dir); err != nil {
		t.Fatal(err)
	}
	ready("comes")

	hand(o, "stop", "byhand") // outlives the death of Orla
	died := time.Now()
	o.signal(syscall.SIGKILL)
	o.wait()
	stop()
	for name, p := range packs {
		testkit.Eventually(t, name+" is gone with Orla", func() bool { return len(p.pids()) == 0 })
	}
	second := serveCapsules(t, tools, config)
	for name := range packs {
		if name != "byhand" {
			second.waitLog("state", is(name, "READY"))
		}
	}
	stop = w.watch(second, "crashes", "byhand")
	testkit.Eventually(t, "the second Orla was looked at", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.seen[len(w.seen)-1].from.After(died.Add(time.Second))
	})
	stop()
	second.signal(syscall.SIGTERM)
	if code := second.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}

	c := read(t, o, second)
	w.check(t, c)
	for name, p := range packs {
		book, err := os.ReadFile(p.lock + ".diary")
		if err != nil {
			t.Fatal(err)
		}
		checkLives(t, name, c.lives[name], strings.Fields(string(book)), exits)
		last := c.stays[name][len(c.stays[name])-1]
		if last.state != "STOPPED" {
			t.Errorf("in the end %s is %s", name, last.state)
		}
	}
	after := c.during("byhand", second.timeOf(second.waitLog("serving", nil)), time.Now())
	for _, s := range after {
		if s.state != "CREATED" && s.state != "STOPPED" || s.state == "STOPPED" && !strings.Contains(s.reason, "by an operator") {
			t.Errorf("in the second Orla, the log says, byhand was %s for the reason %q; want STOPPED by an operator", s.state, s.reason)
		}
	}
}

// check holds what was seen against the log.
func (w *onlooker) check(t *testing.T, c *chronicle) {
	t.Helper()
	const slack = 50 * time.Millisecond // the log tells whole milliseconds, and of its first line not even that
	sharp, states, wrong := 0, map[string]int{}, 0
	for _, s := range w.seen {
		possible := c.during(s.tool, s.from.Add(-slack), s.to.Add(slack))
		if len(possible) == 1 {
			sharp++
		}
		states[s.state]++
		fits := func(at stay) bool { return at.state == s.state && (s.pid == 0 || s.pid == at.pid) }
		if !slices.ContainsFunc(possible, fits) && wrong < 10 {
			wrong++
			t.Errorf("%s was seen as %s (process %d) at %s; the log says %+v", s.tool, s.state, s.pid, s.from, possible)
		}
	}
	t.Logf("%d sights, %d of one moment of the log: %v", len(w.seen), sharp, states)
	for _, state := range []string{"READY", "STARTING", "CRASHED", "STOPPED"} {
		if states[state] == 0 {
			t.Errorf("nothing was ever seen as %s", state)
		}
	}
	if sharp < 100 {
		t.Errorf("only %d sights say something", sharp)
	}
}

// checkLives holds what processes wrote down of themselves against the log.
func checkLives(t *testing.T, name string, lives []life, book []string, exits map[int]string) {
	t.Helper()
	next := 0
	unended := 0
	for _, l := range lives {
		if next < len(book) && book[next] == strconv.Itoa(l.pid) {
			next++ // one that never came to write is not in the book
		}
		if !l.ended {
			unended++
		}
		if want := exits[l.pid]; want != "" && !strings.Contains(l.exit, want) {
			t.Errorf("%s: process %d ended by %s; the log says %q", name, l.pid, want, l.exit)
		}
	}
	if next < len(book) {
		t.Errorf("%s: the log has the processes %+v; it had %v", name, lives, book)
	}
	if unended > 1 {
		t.Errorf("%s: the log does not tell how %d processes ended; only Orla's own death hides one", name, unended)
	}
}
