package program

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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

// counts is an answer.py that answers with its pid and the number of the call.
const counts = "import os\n\noffers = []\nn = 0\n\n\ndef answer(params):\n    global n\n    n += 1\n    return '%d %d' % (os.getpid(), n)\n"

// upgradable is an Orla that was started from a file that can be replaced.
type upgradable struct {
	*running
	program string
	log     *follower
	pid     int
	control *control.Client
}

// serveUpgradable starts an Orla from a copy of the program.
func serveUpgradable(t *testing.T, tools, config string) *upgradable {
	t.Helper()
	u := &upgradable{program: filepath.Join(t.TempDir(), "orla")}
	u.install(t, orlaBinary(t))
	u.running = startPrepared(t, t.TempDir(), func(*exec.Cmd) {}, u.program, "--config", writeConfig(t, tools, config))
	u.log, u.pid = u.follow(), u.cmd.Process.Pid
	u.url, _ = u.log.next("serving", nil)["url"].(string)
	u.control = control.NewClient(u.status().Socket)
	return u
}

// install puts a program in the place of the one that runs, as a package manager does.
func (u *upgradable) install(t *testing.T, from string) {
	t.Helper()
	in, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(u.program+".new", in, 0o755)
	}
	if err == nil {
		err = os.Rename(u.program+".new", u.program)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// upgrade upgrades once, and waits until the new program serves.
func (u *upgradable) upgrade() {
	u.t.Helper()
	next, err := u.control.Upgrade(u.t.Context(), "")
	if err != nil {
		u.t.Fatal(err)
	}
	u.log.next("serving", nil)
	now, err := u.control.Status(u.t.Context())
	if err != nil {
		u.t.Fatal(err)
	}
	if now.Upgrades != next.Number || now.Pid != u.pid {
		u.t.Fatalf("process %d has %d upgrades; want %d and %d", now.Pid, now.Upgrades, u.pid, next.Number)
	}
}

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

// SPEC Q1: upgrades under load lose no connection and no call, and repeat none. Capsules keep their process and memory,
// clients their sessions.
func TestQ1UpgradesUnderLoad(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	names := []string{"first", "second", "third"}
	tallies, packs := map[string]*tally{}, map[string]*pack{}
	for _, name := range names {
		tallies[name] = &tally{}
		packs[name] = newPack(t, tools, name, "", map[string]string{"answer.py": counts})
	}
	testkit.WriteTool(t, tools, "simple.sh", "#!/bin/sh\necho ok\n")
	u := serveUpgradable(t, tools, "")
	for _, name := range names {
		u.waitListed(name)
	}
	sessions := make([]*mcp.ClientSession, 0, 2*len(names))
	ids := make([]string, 0, 2*len(names))
	var callers sync.WaitGroup
	over := make(chan struct{})
	var calls, failed atomic.Int64
	press := func(what string, call func() error) {
		callers.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				calls.Add(1)
				if err := call(); err != nil && failed.Add(1) <= 5 {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	for _, name := range names {
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: u.url, HTTPClient: &http.Client{Transport: &http.Transport{}}, MaxRetries: 100}, &mcp.ClientSessionOptions{ProtocolVersion: version})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = session.Close() })
			sessions, ids = append(sessions, session), append(ids, session.ID())
			press(name+" in "+version, func() error {
				res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: name, Arguments: map[string]any{}})
				if err != nil {
					return err
				}
				text, _ := res.Content[0].(*mcp.TextContent)
				if res.IsError {
					return fmt.Errorf("it answered %q", text.Text)
				}
				return tallies[name].check(text.Text)
			})
		}
		call := u.plain(name)
		press(name+" without a session", func() error {
			text, err := call()
			if err != nil {
				return err
			}
			return tallies[name].check(text)
		})
	}
	simple := u.plain("simple")
	press("a simple tool", func() error {
		_, err := simple()
		return err
	})
	address := strings.TrimSuffix(strings.TrimPrefix(u.url, "http://"), "/mcp")
	press("a new connection", func() error {
		c, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
			return err
		}
		said, err := io.ReadAll(c)
		if !strings.HasPrefix(string(said), "HTTP/1.1 200") {
			return fmt.Errorf("answered %q, %w", said, err)
		}
		return nil
	})
	was := map[string][]int{}
	for _, name := range names {
		was[name] = packs[name].pids()
	}
	began := time.Now()
	n := needs.Rounds(5, 20)
	for i := range n {
		if i%5 == 0 {
			u.install(t, orlaBinary(t))
		}
		u.upgrade()
	}
	took := time.Since(began)
	close(over)
	callers.Wait()
	t.Logf("%d upgrades in %s, with %d calls", n, took.Round(time.Millisecond), calls.Load())
	for _, name := range names {
		if now := packs[name].pids(); !slices.Equal(now, was[name]) {
			t.Errorf("%s has the processes %v; it had %v", name, now, was[name])
		}
		if !tallies[name].whole() {
			t.Errorf("%s has answered other calls than those that were made", name)
		}
	}
	for i, session := range sessions {
		if session.ID() != ids[i] {
			t.Errorf("session %q became %q", ids[i], session.ID())
		}
	}
	u.signal(syscall.SIGKILL)
	testkit.Eventually(t, "nothing outlives Orla", func() bool {
		left := 0
		for _, p := range packs {
			left += len(p.pids())
		}
		return left == 0
	})
}
