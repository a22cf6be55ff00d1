package capsule

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/capsule/clients"
	"github.com/orla-project/orla/capsule/offers"
	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/capsule/stdio"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/mcp/linerpc"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/manifest"
)

// fakeWorld starts processes that are made of memory.
type fakeWorld struct {
	t       *testing.T
	plan    func(n int) behaviour // of the nth process, counted from 1
	alive   atomic.Int64
	started atomic.Int64
	most    int64 // processes that may be alive at once

	mu   sync.Mutex // guards last
	last *fakeProcess
}

// behaviour is how a fakeProcess lives. The zero value says hello and answers at
// once, and ends when its stdin does.
type behaviour struct {
	fails    bool          // it cannot be started
	mute     bool          // it never says hello
	hello    time.Duration // until it says hello
	slow     time.Duration // for each answer
	large    int           // bytes of each answer, beside the usual ones
	stubborn time.Duration // until it ends after it was told to
	dies     time.Duration // until it ends by itself; 0 for never
	says     string        // on stderr, at once
}

// randomly makes a plan of chance.
func randomly(r *rand.Rand) func(int) behaviour {
	upTo := func(ms int) time.Duration { return time.Duration(r.IntN(ms)) * time.Millisecond }
	return func(int) behaviour {
		return behaviour{
			fails: r.IntN(10) == 0, mute: r.IntN(8) == 0,
			hello: upTo(300), slow: upTo(400), stubborn: upTo(700),
		}
	}
}

// fakeProcess is one of them: it says hello after a while, answers each call
// after a while, and ends when it is told to, or by itself.
type fakeProcess struct {
	world          *fakeWorld
	pid            int
	exited, gone   chan struct{}
	die            chan string // why it ends by itself
	finish, killed chan struct{}
	once, killOnce sync.Once
	text           string

	stdin, stdout, stderr             net.Conn // Orla's ends
	theirStdin, theirStdout, theirErr net.Conn
}

func (w *fakeWorld) start(_ context.Context, _ launch.Spec) (stdio.Process, error) {
	n := int(w.started.Add(1))
	plan := w.plan(n)
	if plan.fails {
		return nil, fault.New(fault.StartFailed, "it cannot be started")
	}
	p := &fakeProcess{
		world: w, pid: n,
		exited: make(chan struct{}), gone: make(chan struct{}),
		die: make(chan string, 1), finish: make(chan struct{}), killed: make(chan struct{}),
	}
	p.stdin, p.theirStdin = net.Pipe()
	p.stdout, p.theirStdout = net.Pipe()
	p.stderr, p.theirErr = net.Pipe()
	if now := w.alive.Add(1); now > w.most {
		w.t.Errorf("%d processes at once, want %d at most", now, w.most)
	}
	w.mu.Lock()
	w.last = p
	w.mu.Unlock()
	go p.live(plan)
	return p, nil
}

func (p *fakeProcess) live(plan behaviour) {
	if plan.says != "" {
		go func() { _, _ = fmt.Fprintln(p.theirErr, plan.says) }()
	}
	work := make(chan struct{})
	go func() {
		defer close(work)
		if plan.mute {
			_, _ = io.Copy(io.Discard, p.theirStdin)
			return
		}
		time.Sleep(plan.hello)
		if _, err := fmt.Fprintf(p.theirStdout, "{\"jsonrpc\":\"2.0\",\"method\":\"orla.hello\",\"params\":{\"name\":\"walker\",\"version\":\"1.0.0\"}}\n"); err != nil {
			return
		}
		lines := bufio.NewScanner(p.theirStdin)
		for lines.Scan() {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
			}
			if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
				p.world.t.Errorf("the capsule got %q", lines.Text())
			}
			if m.ID == nil {
				continue
			}
			time.Sleep(plan.slow)
			if _, err := fmt.Fprintf(p.theirStdout, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":\"done%s\"}\n", m.ID, strings.Repeat("!", plan.large)); err != nil {
				return
			}
		}
	}()
	var dies <-chan time.Time
	if plan.dies > 0 {
		dies = time.After(plan.dies)
	}
	select {
	case p.text = <-p.die:
	case <-dies:
		p.text = "exited with code 1"
	case <-p.finish:
		select {
		case <-time.After(plan.stubborn):
		case <-p.killed:
		}
		p.text = "exited with code 0"
	case <-p.killed:
		p.text = "killed by SIGKILL"
	}
	for _, end := range []net.Conn{p.theirStdin, p.theirStdout, p.theirErr} {
		_ = end.Close()
	}
	<-work
	p.world.alive.Add(-1)
	close(p.exited)
	close(p.gone)
}

func (p *fakeProcess) Pid() int { return p.pid }
func (p *fakeProcess) Streams() (stdin, stdout, stderr linerpc.Stream) {
	return p.stdin, p.stdout, p.stderr
}
func (p *fakeProcess) Exited() <-chan struct{}  { return p.exited }
func (p *fakeProcess) Gone() <-chan struct{}    { return p.gone }
func (p *fakeProcess) ExitText() string         { return p.text }
func (p *fakeProcess) Applied() launch.Applied  { return launch.Applied{} }
func (p *fakeProcess) Finish(eof time.Duration) { p.once.Do(func() { close(p.finish) }) }
func (p *fakeProcess) Kill()                    { p.killOnce.Do(func() { close(p.killed) }) }

func (p *fakeProcess) crash() {
	select {
	case p.die <- "exited with code 1":
	default: // it is dying already
	}
}

// through connects with what start starts.
func through(c *Capsule, start func(context.Context, launch.Spec) (stdio.Process, error)) func(context.Context) (Connection, error) {
	return func(ctx context.Context) (Connection, error) {
		spec, err := c.spec()
		if err != nil {
			return nil, err
		}
		p, err := start(ctx, spec)
		if err != nil {
			return nil, err
		}
		if e, ok := p.(Expirer); ok {
			return struct {
				*stdio.Connection
				Expirer
			}{c.piped(p), e}, nil
		}
		return c.piped(p), nil
	}
}

// logsTo makes the log of a capsule that is not served yet another one.
func logsTo(c *Capsule, h slog.Handler) {
	c.log = slog.New(h)
	c.offers = offers.New(c.tool, c.opts.Lists, c.opts.Pins, c.log)
	c.orla = protocol.New(c.tool, c.opts.Version, c.log)
	c.inputs = clients.NewInputs(c.tool.Name, c.tool.Runtime.MaxMessage, c.log)
}

// walker is a capsule of the fake world.
func walker(t *testing.T, w *fakeWorld, change func(*manifest.Runtime)) *Capsule {
	t.Helper()
	tool := manifest.Tool{
		Name: "walker", Version: "1.0.0", Kind: manifest.Capsule, Source: "walker/tool.yaml",
		InputSchema: json.RawMessage(`{"type":"object"}`),
		Run:         manifest.Run{Timeout: 5 * time.Second},
		Runtime: manifest.Runtime{
			Handshake: manifest.HandshakeHello, Start: manifest.StartEager,
			StartupTimeout: 2 * time.Second, Drain: time.Second, StopGrace: time.Second,
			HotLoad: manifest.HotLoad{Mode: manifest.HotLoadRestart},
			Restart: manifest.Restart{Initial: 500 * time.Millisecond, Max: 5 * time.Second, MaxFailures: 8, ResetAfter: 3 * time.Second},
		},
	}
	change(&tool.Runtime)
	c, err := New(tool, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	c.connect = through(c, w.start)
	return c
}

// A random walk over the life of a capsule makes no illegal move (become
// panics on one), has one process at most, answers every call, and leaves
// nothing behind (SPEC D1, D2, D9, D10, F3).
func TestRandomWalk(t *testing.T) {
	for seed := range needs.Rounds(50, 150) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { walk(t, uint64(seed)) })
		})
	}
}

func walk(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &fakeWorld{t: t, plan: randomly(rand.New(rand.NewPCG(seed, 2))), most: 1}
	c := walker(t, w, func(rt *manifest.Runtime) {
		if r.IntN(4) == 0 {
			rt.HotLoad.Mode = manifest.HotLoadReplace
			w.most = 100 // those that were replaced may take their time
		}
		if r.IntN(4) == 0 {
			rt.IdleTimeout = time.Second
		}
		if r.IntN(4) == 0 {
			rt.Health = &manifest.Health{Interval: time.Second, Timeout: 100 * time.Millisecond, Failures: 2}
		}
		if r.IntN(4) == 0 {
			rt.Start = manifest.StartLazy
			rt.Declared = true
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- c.Serve(ctx) }()

	var calls, orders sync.WaitGroup
	order := func(do func(context.Context) error) {
		impatient := r.IntN(5) == 0
		orders.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if impatient {
				ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
			}
			err := do(ctx)
			_, coded := errors.AsType[*fault.Error](err)
			if err != nil && !coded || fault.CodeOf(err) == fault.Timeout && !impatient {
				t.Errorf("an order of an operator gave %v", err)
			}
		})
	}
	for range 40 {
		if r.IntN(8) != 0 { // else it comes with the one before
			time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
		}
		switch r.IntN(8) {
		case 0:
			w.mu.Lock()
			last := w.last
			w.mu.Unlock()
			if last != nil {
				last.crash()
			}
		case 1:
			c.Reload("the walk wants it")
		case 2:
			order(c.Stop)
		case 3:
			order(c.Start)
		case 4:
			order(c.Restart)
		case 5:
			for _, n := range r.Perm(3) { // at once, in any order
				order([]func(context.Context) error{c.Stop, c.Start, c.Restart}[n])
			}
		default:
			impatient := r.IntN(5) == 0
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if impatient {
					ctx, cancel = context.WithTimeout(ctx, 50*time.Millisecond)
					defer cancel()
				}
				got, err := c.Call(ctx, peer.Call{Tool: "walker"})
				raw := got.Raw
				if err == nil && string(raw) != `{"content":[{"type":"text","text":"done"}]}` {
					t.Errorf("a call gave %s", raw)
				}
				_, coded := errors.AsType[*fault.Error](err)
				if err != nil && !coded && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a call gave %v, which has no code", err)
				}
			})
		}
	}
	switch r.IntN(3) {
	case 0:
		calls.Wait()
	case 1:
		orders.Wait()
		ok(t, c.Stop)
		down(t, c, w)
		time.Sleep(time.Minute)
		down(t, c, w)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve gave %v", err)
	}
	calls.Wait()
	orders.Wait()
	if life := c.Life(); life.State != "STOPPED" || life.Pid != 0 || life.Waiting != 0 {
		t.Errorf("the walk ends in %+v", life)
	}
	if n := w.alive.Load(); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// The table of moves has an entry for each state, and leads from CREATED to all
// of them and from all of them to STOPPED (SPEC D1).
func TestTableIsWhole(t *testing.T) {
	reach := func(from State) map[State]bool {
		seen := map[State]bool{}
		queue := []State{from}
		for len(queue) > 0 {
			s := queue[0]
			queue = queue[1:]
			for _, next := range legal[s] {
				if !seen[next] {
					seen[next] = true
					queue = append(queue, next)
				}
			}
		}
		return seen
	}
	for s := Created; s <= Stopped; s++ {
		if s != Created && !reach(Created)[s] {
			t.Errorf("%v cannot be reached", s)
		}
		if s != Stopped && !reach(s)[Stopped] {
			t.Errorf("%v does not lead to STOPPED", s)
		}
		if slices.Contains(legal[s], s) || strings.Contains(s.String(), "?") {
			t.Errorf("%v may follow itself", s)
		}
	}
}
