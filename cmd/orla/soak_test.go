package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// soakTime is how long TestSoak goes on: ORLA_SOAK, or a while that every run of
// the tests has.
func soakTime(t *testing.T) time.Duration {
	given := os.Getenv("ORLA_SOAK")
	if given == "" {
		if testing.Short() {
			return 2 * time.Second
		}
		return 10 * time.Second
	}
	d, err := time.ParseDuration(given)
	if err != nil {
		t.Fatalf("ORLA_SOAK: %v", err)
	}
	return d
}

// SPEC F3, D9, E1, H2: kills, saves, new manifests, tools that come and go,
// SIGHUPs and clients at random, and all at once: every call gets its answer or
// an error that says whether to try again, and in the end Orla is as it was.
func TestSoak(t *testing.T) {
	s := newSoak(t)
	s.settle()
	s.turn(3 * time.Second) // what pools and caches need is there after that
	s.settle()
	s.orla.staysFlat(8, func() {
		s.turn(soakTime(t))
		s.settle()
	})
	s.report()
}

// soak is an Orla under random load.
type soak struct {
	t      *testing.T
	orla   *running
	tools  string
	packs  []*pack
	dice   *rand.Rand // of the one goroutine that does harm
	serial int
	did    map[string]int

	mu       sync.Mutex     // guards outcomes
	outcomes map[string]int // of calls, by code
}

// soakTypes are the capsules of a soak, with what is special about them.
var soakTypes = []struct{ name, runtime, answer string }{
	{"plain", atOnce, says("'v0'")},
	{"slow", atOnce + "\nmax_concurrency: 2", says("time.sleep(0.03) or 'v0'")},
	{"replaced", atOnce + "\nhot_load: {mode: replace, debounce_ms: 20}", says("'v0'")},
	{"lazy", atOnce + "\nstart: lazy\nidle_timeout: 300ms", says("'v0'")},
	{"healthy", atOnce + "\nhealth: {interval_ms: 200, timeout_ms: 1000, failures: 3}", says("'v0'")},
}

func newSoak(t *testing.T) *soak {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &soak{t: t, tools: t.TempDir(), dice: rand.New(rand.NewPCG(seed, 0)), did: map[string]int{}, outcomes: map[string]int{}}
	for _, kind := range soakTypes {
		p := newPack(t, s.tools, kind.name, kind.runtime, map[string]string{"answer.py": kind.answer})
		if kind.name == "replaced" { // two at once for a moment are what it asks for
			p.save("main.py", strings.Replace(readFile(t, filepath.Join(p.dir, "main.py")), "LOCK_EX", "LOCK_SH", 1))
		}
		s.packs = append(s.packs, p)
	}
	writeTool(t, s.tools, "simple.sh", "#!/bin/sh\necho v0\n")
	s.orla = serveCapsules(t, s.tools, "")
	return s
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// turn lets clients call and does harm for a while.
func (s *soak) turn(long time.Duration) {
	over := time.NewTimer(long)
	defer over.Stop()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for _, name := range []string{"plain", "slow", "replaced", "lazy", "healthy", "simple", "comes"} {
		clients.Go(func() { s.calls(name, stop) })
	}
	clients.Go(func() { s.sessions(stop) })
	defer clients.Wait()
	defer close(stop)
	for {
		pace := time.NewTimer(20*time.Millisecond + time.Duration(s.dice.IntN(150))*time.Millisecond)
		select {
		case <-pace.C:
			s.harm()
		case <-over.C:
			pace.Stop()
			return
		}
	}
}

// calls calls one tool until stop, and checks each answer.
func (s *soak) calls(name string, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		a, err := s.orla.call(name, "{}")
		s.note(name, a, err)
	}
}

// note counts how a call ended, and fails the test for one that was lost: that
// got no answer, or an error that does not say what to do about it.
func (s *soak) note(name string, a *answer, err error) {
	code := "ok"
	switch {
	case err != nil:
		code = "lost"
		s.t.Errorf("%s: no answer: %v", name, err)
	case a.Error != nil && name == "comes":
		code = "unknown" // it is not there now
	case a.Error != nil || len(a.Result.Content) == 0:
		code = "odd"
		s.t.Errorf("%s: %+v", name, a)
	case !a.Result.IsError:
		if text := a.Result.Content[0].Text; !strings.HasPrefix(text, "v") {
			s.t.Errorf("%s: an answer that nobody gave: %q", name, text)
		}
	default:
		code, _ = a.Result.Meta["tool_code"].(string)
		_, told := a.Result.Meta["retryable"].(bool)
		expected := []string{"crashed", "not_ready", "start_failed", "timeout"}
		if name == "comes" { // its file is gone, and Orla has not seen that yet
			expected = append(expected, "execution_failed")
		}
		if !told || !slices.Contains(expected, code) {
			s.t.Errorf("%s: %+v", name, *a.Result)
		}
	}
	s.mu.Lock()
	s.outcomes[code]++
	s.mu.Unlock()
}

// sessions opens and leaves sessions of the Go SDK.
func (s *soak) sessions(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		client := mcp.NewClient(&mcp.Implementation{Name: "soak", Version: "1"}, nil)
		session, err := client.Connect(s.t.Context(), &mcp.StreamableClientTransport{Endpoint: s.orla.url}, nil)
		if err != nil {
			s.t.Errorf("a session: %v", err)
			return
		}
		if _, err := session.ListTools(s.t.Context(), nil); err != nil {
			s.t.Errorf("tools/list in a session: %v", err)
		}
		_ = session.Close() // the test is of what it leaves
	}
}

// harm does one thing that happens to a running Orla.
func (s *soak) harm() {
	s.serial++
	p := s.packs[s.dice.IntN(len(s.packs))]
	acts := []struct {
		name string
		do   func()
	}{
		{"kill", func() {
			for _, process := range p.pids() {
				_ = syscall.Kill(process, syscall.SIGKILL) // it may be over
			}
		}},
		{"save", func() {
			p.save("answer.py", strings.Replace(typeOf(p.name).answer, "v0", fmt.Sprintf("v%d", s.serial), 1))
		}},
		{"mistake", func() {
			p.save("answer.py", "this is no Python\n")
			p.save("answer.py", typeOf(p.name).answer)
		}},
		{"manifest", func() {
			p.manifest(typeOf(p.name).runtime+fmt.Sprintf("\ntimeout: %ds", 20+s.serial%9), "mcp: {input_schema: {type: object}}")
		}},
		{"half a manifest", func() {
			whole := readFile(s.t, filepath.Join(p.dir, "tool.yaml"))
			p.save("tool.yaml", whole[:len(whole)/2])
			p.save("tool.yaml", whole)
		}},
		{"SIGHUP", func() { s.orla.signal(syscall.SIGHUP) }},
		{"SIGUSR1", func() { s.orla.signal(syscall.SIGUSR1) }},
		{"restart", func() { s.byHand("restart", p.name) }},
		{"stop", func() { s.byHand("stop", p.name) }},
		{"start", func() { s.byHand("start", p.name) }},
		{"reload", func() { s.byHand("reload") }},
		{"status", func() { s.byHand("status", "--json") }},
		{"logs", func() { s.byHand("logs", p.name) }},
		{"come", func() { writeTool(s.t, s.tools, "comes.sh", fmt.Sprintf("#!/bin/sh\necho v%d\n", s.serial)) }},
		{"go", func() { _ = os.Remove(filepath.Join(s.tools, "comes.sh")) }},
	}
	act := acts[s.dice.IntN(len(acts))]
	s.did[act.name]++
	act.do()
}

// byHand runs one of the operator's commands. A capsule that does not start is
// told of by exit code 1, and is no fault of the command.
func (s *soak) byHand(args ...string) {
	if out := s.orla.orla(args...); out.code > 1 {
		s.t.Errorf("orla %s ends with %d: %s", strings.Join(args, " "), out.code, out.err)
	}
}

func typeOf(name string) struct{ name, runtime, answer string } {
	for _, kind := range soakTypes {
		if kind.name == name {
			return kind
		}
	}
	panic("no capsule " + name)
}

// settle makes everything whole again, and waits until it is.
func (s *soak) settle() {
	s.t.Helper()
	_ = os.Remove(filepath.Join(s.tools, "comes.sh"))
	for _, p := range s.packs {
		p.save("answer.py", typeOf(p.name).answer)
	}
	s.orla.mustOrla("start", "--all")
	for _, p := range s.packs {
		call := s.orla.plain(p.name)
		eventually(s.t, p.name+" answers what was saved last", func() bool {
			text, err := call()
			return err == nil && text == "v0"
		})
	}
	lazy := s.packs[slices.IndexFunc(s.packs, func(p *pack) bool { return p.name == "lazy" })]
	eventually(s.t, "what is lazy sleeps", func() bool { return len(lazy.pids()) == 0 })
	// One process for each that does not sleep, and the guard.
	eventually(s.t, "no process is left over", func() bool { return s.orla.children() == len(s.packs) })
}

// children is how many processes Orla has started that run.
func (o *running) children() int {
	n := 0
	for _, pid := range children(o.cmd.Process.Pid) {
		if alive(pid) {
			n++
		}
	}
	return n
}

// report prints what was done, and what it costs to keep.
func (s *soak) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Logf("done: %v", s.did)
	s.t.Logf("calls: %v", s.outcomes)
	s.t.Logf("Orla: %d KiB resident", statusField(s.t, s.orla.cmd.Process.Pid, "VmRSS:"))
	for _, p := range s.packs {
		for _, pid := range p.pids() {
			s.t.Logf("%s: %d KiB resident", p.name, statusField(s.t, pid, "VmRSS:"))
		}
	}
}
