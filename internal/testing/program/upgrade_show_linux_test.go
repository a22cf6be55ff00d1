package program

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// takesTime is an answer.py that takes as many ms as it is told, and answers with its pid and the number of the call.
var takesTime = strings.NewReplacer("import os\n", "import os, time\n", "    n += 1\n", "    n += 1\n    time.sleep(params['arguments'].get('ms', 0) / 1000)\n").Replace(counts)

// asksAndCounts is askMain, which answers with its pid and the number of the call.
var asksAndCounts = strings.NewReplacer(
	"import json, sys\n", "import json, os, sys\n\nn = 0\n",
	"        say(id=asked, ", "        n += 1\n        say(id=asked, ",
	`message["result"]["action"]`, `"%d %d" % (os.getpid(), n)`,
).Replace(askMain)

// tally counts what callers of one capsule are answered.
type tally struct {
	mu   sync.Mutex
	pid  string
	seen map[string]bool
}

func (c *tally) check(text string) error {
	pid, n, _ := strings.Cut(text, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.pid, c.seen = pid, map[string]bool{}
	}
	if pid != c.pid || c.seen[n] {
		return fmt.Errorf("%q from a capsule with the pid %s, which was seen: %t", text, c.pid, c.seen[n])
	}
	c.seen[n] = true
	return nil
}

// whole reports whether as many calls were answered as there were.
func (c *tally) whole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.seen {
		if i, err := strconv.Atoi(n); err != nil || i > len(c.seen) {
			return false
		}
	}
	return len(c.seen) > 0
}

// show is an Orla under load that is upgraded again and again.
type show struct {
	*upgradable
	packs    map[string]*pack
	tallies  map[string]*tally
	sessions map[*mcp.ClientSession]string // the ids that they had
	asked    atomic.Int64                  // how often clients were asked something
	random   *rand.Rand                    // of the goroutine of the test
}

const (
	counters = 13         // capsules whose calls take 1 to 50 ms
	slows    = 3          // capsules whose calls take up to 5 s
	askers   = 4          // capsules that ask their client before they answer
	changing = "changing" // its files are saved all the time
	fragile  = "fragile"  // it is killed all the time
)

func counter(i int) string { return fmt.Sprintf("counts%d", i) }

func slow(i int) string { return fmt.Sprintf("slow%d", i) }

func asker(i int) string { return fmt.Sprintf("asks%d", i) }

// pack writes a capsule whose process has to stay.
func (s *show) pack(t *testing.T, tools, name, runtime string, files map[string]string) {
	t.Helper()
	s.packs[name], s.tallies[name] = newPack(t, tools, name, runtime, files), &tally{}
}

func newShow(t *testing.T) *show {
	t.Helper()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	s := &show{packs: map[string]*pack{}, tallies: map[string]*tally{}, sessions: map[*mcp.ClientSession]string{}, random: rand.New(rand.NewPCG(1, 1))}
	tools := t.TempDir()
	for i := range counters {
		s.pack(t, tools, counter(i), "", map[string]string{"answer.py": takesTime})
	}
	for i := range slows {
		s.pack(t, tools, slow(i), "", map[string]string{"answer.py": takesTime})
	}
	for i := range askers {
		s.pack(t, tools, asker(i), "handshake: mcp", map[string]string{"main.py": strings.Replace(asksAndCounts, "PYTHON", interpreter, 1)})
		s.packs[asker(i)].manifest("handshake: mcp", "")
	}
	for _, name := range []string{changing, fragile} {
		s.packs[name] = newPack(t, tools, name, "restart: {initial_ms: 10, max_ms: 50, max_failures: 0}", map[string]string{"answer.py": counts})
	}
	testkit.WriteTool(t, tools, "simple.sh", "#!/bin/sh\necho ok\n")
	s.upgradable = serveUpgradable(t, orlaBinary(t), tools, "shutdown_grace: 8s\n")
	for name := range s.packs {
		if _, asks := strings.CutPrefix(name, "asks"); asks {
			name += "__ask"
		}
		s.waitListed(name)
	}
	return s
}

// begin begins a session in an era, or what stands for one.
func (s *show) begin(version string) *mcp.ClientSession {
	s.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(ctx context.Context, _ *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			s.asked.Add(1)
			wait(ctx, time.Duration(1+rand.N(20))*time.Millisecond)
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := client.Connect(s.t.Context(), &mcp.StreamableClientTransport{
		Endpoint: s.url, HTTPClient: &http.Client{Transport: &http.Transport{}}, MaxRetries: 100,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = session.Close() })
	s.sessions[session] = session.ID()
	return session
}

// wait waits, for what takes a person or a client time.
func wait(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// calls returns a caller that calls a tool of a capsule in a session, with calls of some length, and rests for a while
// between them: about as long for long calls.
func (s *show) calls(session *mcp.ClientSession, name, tool string, least, most time.Duration) caller {
	random, rest := rand.New(rand.NewPCG(2, uint64(len(s.sessions)))), 600*time.Millisecond
	switch {
	case most == 0: // who asks all the time leaves no moment without a question
		rest = 3 * time.Second
	case needs.More():
		rest = 50 * time.Millisecond
	}
	return func() (string, error) {
		wait(context.Background(), time.Duration(random.Int64N(int64(max(rest, most)))))
		ms := (least + time.Duration(random.Int64N(int64(most-least)+1))).Milliseconds()
		began := time.Now()
		err := func() error {
			res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: map[string]any{"ms": ms}})
			if err != nil {
				return err
			}
			text, _ := res.Content[0].(*mcp.TextContent)
			if res.IsError {
				return fmt.Errorf("it answered %q", text.Text)
			}
			return s.tallies[name].check(text.Text)
		}()
		if err != nil {
			return "", fmt.Errorf("%s in session %q after %s: %w", tool, s.sessions[session], time.Since(began).Round(time.Millisecond), err)
		}
		return "", nil
	}
}

// connects is a caller on a new connection.
func (s *show) connects() (string, error) {
	wait(context.Background(), 20*time.Millisecond)
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/mcp"))
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	said, err := io.ReadAll(c)
	if err == nil && !strings.HasPrefix(string(said), "HTTP/1.1 200") {
		err = fmt.Errorf("answered %q", said)
	}
	return "", err
}

// callers returns 64 callers: 30 in sessions of each era, and others without.
func (s *show) callers() (all []caller) {
	for n, version := range []string{"2025-11-25", "2026-07-28"} {
		for i := range 25 {
			name := counter(i % counters)
			all = append(all, s.calls(s.begin(version), name, name, time.Millisecond, 50*time.Millisecond))
		}
		all = append(all, s.calls(s.begin(version), slow(n), slow(n), 100*time.Millisecond, 5*time.Second)) // alone, so that it does not queue
		for range 2 {
			all = append(all, s.calls(s.begin(version), slow(2), slow(2), 100*time.Millisecond, time.Second))
		}
		for i := 2 * n; i < 2*n+2; i++ {
			all = append(all, s.calls(s.begin(version), asker(i), asker(i)+"__ask", 0, 0))
		}
	}
	return append(all, s.plain("simple"), s.plain(changing), s.connects, s.connects)
}

// disturb saves a file, kills a process or reads the configuration again.
func (s *show) disturb() {
	switch s.random.IntN(3) {
	case 0:
		s.packs[changing].save("answer.py", counts)
	case 1:
		for _, pid := range s.packs[fragile].pids() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may be over
		}
	default:
		if _, err := s.control.Reload(context.Background(), control.ReloadRequest{}); err != nil {
			s.t.Logf("a reload: %v", err)
		}
	}
}

// pauses returns how long requests waited at each upgrade, as the log says it: all in all, and without what was in
// flight before.
func (s *show) pauses() (whole, without []time.Duration) {
	at := func(l map[string]any) time.Time {
		text, _ := l["time"].(string)
		when, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			s.t.Fatal(err)
		}
		return when
	}
	log := s.follow()
	for range s.count("upgraded", nil) {
		left := log.next("executing", nil)
		pause := at(log.next("serving", nil)).Sub(at(left))
		ms, _ := left["paused_ms"].(float64)
		whole, without = append(whole, pause+time.Duration(ms)*time.Millisecond), append(without, pause)
	}
	return whole, without
}

func quantiles(of []time.Duration) string {
	slices.Sort(of)
	at := func(q float64) time.Duration { return of[int(q*float64(len(of)-1))].Round(time.Millisecond) }
	return fmt.Sprintf("p50 %s, p99 %s", at(0.5), at(0.99))
}

// SPEC Q1: upgrades under load lose no connection and no call, and repeat none: 64 clients of both eras, 20 capsules,
// calls of 1 ms to 5 s, questions in flight, reloads and crashes. Capsules keep their process and memory, clients
// their sessions. Nothing outlives the process.
func TestQ1UpgradesUnderLoad(t *testing.T) {
	needs.Time(t, "upgrades again and again")
	t.Parallel()
	s := newShow(t)
	p, stop := press(t, s.callers(), lossless)
	was := map[string][]int{}
	for name := range s.tallies {
		was[name] = s.packs[name].pids()
	}
	n := needs.Rounds(2, 2)
	for i := range n {
		if i%5 == 0 {
			s.install(t, orlaBinary(t))
		}
		s.disturb()
		wait(t.Context(), time.Duration(s.random.IntN(300))*time.Millisecond)
		s.upgrade()
	}
	stop()
	whole, without := s.pauses()
	t.Logf("%d upgrades, %d calls, of which %d were lost, %d questions; requests wait %s, without what was in flight %s",
		n, p.calls.Load(), p.failed.Load(), s.asked.Load(), quantiles(whole), quantiles(without))
	for name, c := range s.tallies {
		if now := s.packs[name].pids(); !slices.Equal(now, was[name]) {
			t.Errorf("%s has the processes %v; it had %v", name, now, was[name])
		}
		if !c.whole() {
			t.Errorf("%s has answered other calls than those that were made", name)
		}
	}
	for session, id := range s.sessions {
		if session.ID() != id {
			t.Errorf("session %q became %q", id, session.ID())
		}
	}
	s.signal(syscall.SIGKILL)
	testkit.Eventually(t, "nothing outlives Orla", func() bool {
		left := 0
		for _, p := range s.packs {
			left += len(p.pids())
		}
		return left == 0
	})
}
