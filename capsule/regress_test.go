package capsule

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/capsule/stdio"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/mcp/linerpc"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// scripted is a process made of memory whose part a test writes.
type scripted struct {
	n                           int // counted from 1
	stdin, stdout, stderr       net.Conn
	theirIn, theirOut, theirErr net.Conn
	exited                      chan struct{}
	once                        sync.Once
	text                        string
	over                        bool // see Expired
}

// asked is what a scripted process is sent.
type asked struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Error  json.RawMessage `json:"error"`
}

func (p *scripted) Pid() int { return p.n }
func (p *scripted) Streams() (stdin, stdout, stderr linerpc.Stream) {
	return p.stdin, p.stdout, p.stderr
}
func (p *scripted) Exited() <-chan struct{} { return p.exited }
func (p *scripted) Gone() <-chan struct{}   { return p.exited }
func (p *scripted) ExitText() string        { return p.text }
func (p *scripted) Expired() bool           { return p.over }
func (p *scripted) Applied() launch.Applied { return launch.Applied{} }
func (p *scripted) Finish(time.Duration)    { p.exit("exited with code 0") }
func (p *scripted) Kill()                   { p.exit("killed by SIGKILL") }

func (p *scripted) exit(text string) {
	p.once.Do(func() {
		p.text = text
		for _, end := range []net.Conn{p.theirIn, p.theirOut, p.theirErr} {
			_ = end.Close() // memory
		}
		close(p.exited)
	})
}

// says writes a line. A process that is gone says nothing.
func (p *scripted) says(format string, args ...any) {
	_, _ = fmt.Fprintf(p.theirOut, format+"\n", args...)
}

func (p *scripted) answers(m asked, result string) {
	p.says(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// journal keeps a log.
type journal struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// having returns the lines that have all these words.
func (j *journal) having(words ...string) (lines []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.SplitSeq(j.text.String(), "\n") {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

const serverCaps = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"x","version":"1"}}`

// asServer runs a test with an MCP server whose answers play gives; it answers
// initialize, and what else play leaves, by itself.
func asServer(t *testing.T, play func(p *scripted, m asked) bool, test func(t *testing.T, c *Capsule, log *journal)) {
	t.Helper()
	asServerWith(t, func(*manifest.Runtime) {}, play, test)
}

func asServerWith(t *testing.T, change func(*manifest.Runtime), play func(p *scripted, m asked) bool, test func(t *testing.T, c *Capsule, log *journal)) {
	t.Helper()
	inPlay(t, func(r *manifest.Runtime) { r.Handshake = manifest.HandshakeMCP; change(r) }, func(p *scripted, m asked) {
		switch {
		case play(p, m), m.ID == nil:
		case m.Method == "initialize":
			p.answers(m, serverCaps)
		default:
			p.answers(m, "{}")
		}
	}, test)
}

// inPlay runs a test with a capsule whose processes do for each message what
// play says; at the start there is one without a method. more changes the capsule.
func inPlay(t *testing.T, change func(*manifest.Runtime), play func(p *scripted, m asked), test func(t *testing.T, c *Capsule, log *journal), more ...func(*Capsule)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &journal{}
		c := walker(t, &fakeWorld{t: t}, change)
		for _, change := range more {
			change(c)
		}
		c.opts.Lists = records.NewLists(t.TempDir())
		logsTo(c, slog.NewJSONHandler(log, nil))
		var started atomic.Int64
		var players sync.WaitGroup
		c.connect = through(c, func(context.Context, launch.Spec) (stdio.Process, error) {
			p := &scripted{n: int(started.Add(1)), exited: make(chan struct{})}
			p.stdin, p.theirIn = net.Pipe()
			p.stdout, p.theirOut = net.Pipe()
			p.stderr, p.theirErr = net.Pipe()
			players.Go(func() {
				play(p, asked{})
				lines := bufio.NewReader(p.theirIn)
				for {
					line, err := lines.ReadBytes('\n')
					if err != nil {
						return
					}
					var m asked
					if err := json.Unmarshal(line, &m); err != nil {
						t.Errorf("the capsule got %q", line)
					}
					play(p, m)
				}
			})
			return p, nil
		})
		stop := served(t, c)
		test(t, c, log)
		stop()
		players.Wait()
	})
}

func toolNames(c *Capsule) (names []string) {
	for _, tool := range c.Offers().Tools {
		names = append(names, tool.Name)
	}
	return names
}

// SPEC D7a: an MCP server that dies while it is asked for its lists has said
// nothing: its tools stay what they were, here and for the next start.
func TestDiesWhileItIsAskedForItsLists(t *testing.T) {
	want := []string{"walker__alpha", "walker__beta"}
	for _, how := range []string{"after a restart", "after list_changed"} {
		t.Run(how, func(t *testing.T) {
			var sick atomic.Bool
			var first atomic.Pointer[scripted]
			asServer(t, func(p *scripted, m asked) bool {
				if p.n == 1 {
					first.Store(p)
				}
				switch {
				case m.Method == "tools/list" && sick.Load():
					p.exit("exited with code 3")
					return true
				case m.Method == "tools/list":
					p.answers(m, `{"tools":[{"name":"alpha","inputSchema":{"type":"object"}},{"name":"beta","inputSchema":{"type":"object"}}]}`)
					return true
				}
				return false
			}, func(t *testing.T, c *Capsule, _ *journal) {
				time.Sleep(5 * time.Second)
				if got := toolNames(c); !slices.Equal(got, want) {
					t.Fatalf("it offers %q", got)
				}
				offers := c.Offers()
				sick.Store(true)
				if how == "after a restart" {
					first.Load().exit("exited with code 3")
				} else {
					first.Load().says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
				}
				time.Sleep(10 * time.Second)
				if c.Life().Restarts == 0 {
					t.Error("it did not die")
				}
				if got := toolNames(c); !slices.Equal(got, want) || c.Offers() != offers {
					t.Errorf("after %d restarts it offers %q", c.Life().Restarts, got)
				}
				if said, ok := c.opts.Lists.Load(c.tool); !ok || len(said.Tools) != len(want) {
					t.Errorf("kept is %+v", said)
				}
			})
		})
	}
}

// A refusal is an answer: the server has no such list.
func TestRefusalEmptiesAList(t *testing.T) {
	var refuses atomic.Bool
	asServer(t, func(p *scripted, m asked) bool {
		switch {
		case m.Method == "" && p.n == 2:
			refuses.Store(true)
		case m.Method != "tools/list":
			return false
		case refuses.Load():
			p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, m.ID)
		default:
			p.answers(m, `{"tools":[{"name":"alpha"}]}`)
		}
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(time.Second)
		if got := toolNames(c); !slices.Equal(got, []string{"alpha"}) {
			t.Errorf("it offers %q", got)
		}
		c.Reload("for the test")
		time.Sleep(time.Second)
		if got := toolNames(c); len(got) > 0 {
			t.Errorf("after a refusal it offers %q", got)
		}
	})
}

// A server that says at each list that its lists have changed is asked once a
// second, and its last word counts.
func TestListChangedStorm(t *testing.T) {
	var listed atomic.Int64
	asServer(t, func(p *scripted, m asked) bool {
		if m.Method != "tools/list" {
			return false
		}
		p.says(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
		p.answers(m, fmt.Sprintf(`{"tools":[{"name":"t%d"}]}`, listed.Add(1)))
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		const seconds = 60
		time.Sleep(seconds * time.Second)
		synctest.Wait()
		n := listed.Load()
		if n < seconds/2 || n > seconds+1 {
			t.Errorf("it was asked %d times in %d s", n, seconds)
		}
		if got := toolNames(c); !slices.Equal(got, []string{fmt.Sprint("t", n)}) {
			t.Errorf("it offers %q after %d lists", got, n)
		}
	})
}

// SPEC D4: a second hello is logged and ignored; thousands of them do not fill the log.
func TestHelloFlood(t *testing.T) {
	const flood = 5000
	inPlay(t, func(r *manifest.Runtime) { r.Declared = true }, func(p *scripted, m asked) {
		const hello = `{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"walker","version":"1.0.0"}}`
		if m.Method == "" {
			for range flood + 1 {
				p.says(hello)
			}
			time.Sleep(time.Hour) // in a bubble
			p.says(hello)
		} else if m.ID != nil {
			p.answers(m, `"done"`)
		}
	}, func(t *testing.T, c *Capsule, log *journal) {
		synctest.Wait()
		if shown := len(log.having("hello once more")); shown == 0 || shown > 10 || c.Life().State != "READY" {
			t.Errorf("%d lines of %d hellos; it is %s", shown, flood, c.Life().State)
		}
		time.Sleep(2 * time.Hour)
		if lines := log.having("hello once more"); !strings.Contains(lines[len(lines)-1], fmt.Sprintf(`"not_shown":%d`, flood-10)) {
			t.Errorf("the last line is %s", lines[len(lines)-1])
		}
	})
}

// SPEC D8: what clients have asked for, and a server has granted, its next
// process is told; what it refused is forgotten.
func TestRefusedSubscriptionsAreForgotten(t *testing.T) {
	var mu sync.Mutex
	told := map[int][]string{}
	asServer(t, func(p *scripted, m asked) bool {
		if m.Method != "resources/subscribe" && m.Method != "resources/unsubscribe" && m.Method != "logging/setLevel" {
			return false
		}
		mu.Lock()
		told[p.n] = append(told[p.n], string(m.Params))
		mu.Unlock()
		if strings.Contains(string(m.Params), "bad") {
			p.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32002,"message":"no"}}`, m.ID)
			return true
		}
		return false
	}, func(t *testing.T, c *Capsule, _ *journal) {
		ask := func(method, params string, good bool) {
			t.Helper()
			_, err := c.Request(t.Context(), peer.Request{Method: method, Params: json.RawMessage(params)})
			if (err == nil) != good {
				t.Errorf("%s %s gives %v", method, params, err)
			}
		}
		ask("logging/setLevel", `{"level":"debug"}`, true) // it is STARTING
		time.Sleep(5 * time.Second)
		for i := range 10 {
			ask("resources/subscribe", fmt.Sprintf(`{"uri":"bad:%d"}`, i), false)
		}
		ask("resources/subscribe", `{"uri":"good:1"}`, true)
		ask("resources/subscribe", `{"uri":"good:2"}`, true)
		ask("resources/unsubscribe", `{"uri":"good:1"}`, true)
		if n := len(c.wishes.Followed()); n != 1 {
			t.Errorf("%d subscriptions are remembered, want 1", n)
		}
		c.Reload("for the test")
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(told[2], []string{`{"level":"debug"}`, `{"uri":"good:2"}`}) {
			t.Errorf("the second process was told %q", told[2])
		}
		if len(told[1]) == 0 || told[1][0] != `{"level":"debug"}` {
			t.Errorf("the first process was told %q", told[1])
		}
	})
}

// A wish that may be granted later does not wait for a process to be READY,
// and each process is told what is wished when it is.
func TestWishesForLater(t *testing.T) {
	told, greeted := make(chan string, 10), make(chan struct{})
	asServer(t, func(p *scripted, m asked) bool {
		if m.Method == "initialize" {
			<-greeted
		}
		if strings.HasPrefix(m.Method, "resources/") && strings.HasSuffix(m.Method, "subscribe") {
			told <- fmt.Sprint(p.n, " ", m.Method, " ", string(m.Params))
		}
		return false
	}, func(t *testing.T, c *Capsule, _ *journal) {
		wish := func(method, uri string) {
			t.Helper()
			params := json.RawMessage(`{"uri":"` + uri + `"}`)
			if _, err := c.Request(t.Context(), peer.Request{Method: method, Params: params, Later: true}); err != nil {
				t.Errorf("%s: %v", method, err)
			}
		}
		hears := func(want ...string) {
			t.Helper()
			time.Sleep(5 * time.Second)
			for _, word := range want {
				if got := <-told; got != word {
					t.Errorf("it was told %q, want %q", got, word)
				}
			}
			if len(told) > 0 {
				t.Errorf("it was told %q as well", <-told)
			}
		}
		wish("resources/subscribe", "a:1") // it is STARTING
		wish("resources/subscribe", "a:2")
		wish("resources/unsubscribe", "a:2")
		if len(told) > 0 {
			t.Errorf("before it was READY it was told %q", <-told)
		}
		close(greeted)
		hears(`1 resources/subscribe {"uri":"a:1"}`)
		wish("resources/subscribe", "a:3")
		hears(`1 resources/subscribe {"uri":"a:3"}`)
		wish("resources/unsubscribe", "a:1")
		hears(`1 resources/unsubscribe {"uri":"a:1"}`)
		c.Reload("for the test")
		hears(`2 resources/subscribe {"uri":"a:3"}`)
	})
}

// SPEC D7a, D12: a health check does not count as a use of a capsule.
func TestIdleBesidePings(t *testing.T) {
	plan := func(int) behaviour { return behaviour{} }
	inBubble(t, plan, func(r *manifest.Runtime) {
		r.Start, r.Declared, r.IdleTimeout = manifest.StartLazy, true, time.Minute
		r.Health = &manifest.Health{Interval: 10 * time.Second, Timeout: time.Second, Failures: 3}
	}, func(t *testing.T, w *fakeWorld, c *Capsule, m *moves) {
		for range 3 {
			time.Sleep(30 * time.Second) // within idle_timeout
			if err := ask(t.Context(), c); err != nil {
				t.Error(err)
			}
		}
		if w.started.Load() != 1 {
			t.Errorf("it was started %d times for three calls", w.started.Load())
		}
		time.Sleep(time.Hour)
		if c.Life().State != "STOPPED" || w.started.Load() != 1 {
			t.Errorf("after an hour without a call it went %s", m)
		}
	})
}

// SPEC D9: a capsule that is to be started again has no process, and its last
// one ended in the log.
func TestNoPidBetweenProcesses(t *testing.T) {
	asServer(t, func(p *scripted, m asked) bool {
		if m.Method == "initialize" {
			p.exit("exited with code 7")
			return true
		}
		return false
	}, func(t *testing.T, c *Capsule, log *journal) {
		synctest.Wait()
		life := c.Life()
		if life.State != "CRASHED" || life.Pid != 0 || !life.Next.After(time.Now()) || life.LastExit != "exited with code 7" {
			t.Errorf("between two processes it is %+v", life)
		}
		if n := len(log.having(`"msg":"ended"`, `"tool":"walker"`, `"pid":1`, `"exit":"exited with code 7"`)); n != 1 {
			t.Errorf("its end is told %d times", n)
		}
	})
}

// SPEC D10: with max_concurrency the callers of a capsule that is down do not
// wait for one another's waiting.
func TestCallersOfOneThatIsDownWaitTogether(t *testing.T) {
	plan := func(int) behaviour { return behaviour{mute: true} }
	crowd := func(t *testing.T, c *Capsule, took time.Duration, code fault.Code, retry ...bool) {
		t.Helper()
		began := time.Now()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				f := fault.From(ask(t.Context(), c))
				if f == nil || f.Code != code || !slices.Contains(retry, f.Retryable()) || time.Since(began) != took {
					t.Errorf("after %s, want %s, a call is told %v", time.Since(began), took, f)
				}
			})
		}
		wg.Wait()
	}
	t.Run("it never starts", func(t *testing.T) {
		inBubble(t, plan, func(r *manifest.Runtime) { r.StartupTimeout = time.Hour }, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
			c.places = placesOf(1)
			crowd(t, c, DefaultQueueTimeout, fault.NotReady, true)
		})
	})
	t.Run("it comes to be STOPPED", func(t *testing.T) {
		inBubble(t, plan, func(r *manifest.Runtime) { r.Restart.MaxFailures = 1 }, func(t *testing.T, _ *fakeWorld, c *Capsule, _ *moves) {
			c.places = placesOf(1)
			// CRASHED or STOPPED already, as its process ends.
			crowd(t, c, 2*time.Second, fault.StartFailed, false)
			synctest.Wait()
			if c.Life().State != "STOPPED" {
				t.Errorf("it is %s", c.Life().State)
			}
			crowd(t, c, 0, fault.StartFailed, false)
		})
	})
}

// A capsule whose manifest has gone begins nothing, and says so in a way that
// lets whoever took its place be asked.
func TestIsGoneWhenItIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &fakeWorld{t: t, plan: func(int) behaviour { return behaviour{} }, most: 1}
		c := walker(t, w, unchanged)
		errs := make(chan error, 2)
		go func() { errs <- ask(t.Context(), c) }()
		go func() {
			_, err := c.Request(t.Context(), peer.Request{Method: "resources/read", Params: json.RawMessage(`{"uri":"x:"}`)})
			errs <- err
		}()
		synctest.Wait() // they wait
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Serve(over); err == nil {
			t.Error("Serve gave no error")
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, peer.ErrGone) {
				t.Errorf("one that waited is told %v", err)
			}
		}
		if w.started.Load() != 0 {
			t.Errorf("%d processes were started", w.started.Load())
		}
	})
}

// SPEC G5: what a capsule asks that Orla does not know is refused in few words.
func TestRefusesInFewWords(t *testing.T) {
	var refusal atomic.Pointer[json.RawMessage]
	inPlay(t, func(r *manifest.Runtime) { r.Declared = true }, func(p *scripted, m asked) {
		switch {
		case m.Error != nil:
			refusal.Store(&m.Error)
		case m.Method == "":
			p.says(`{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"walker","version":"1.0.0"}}`)
			p.says(`{"jsonrpc":"2.0","id":1,"method":"%s"}`, strings.Repeat("m", 1<<20))
		}
	}, func(t *testing.T, c *Capsule, _ *journal) {
		synctest.Wait()
		if got := refusal.Load(); got == nil || len(*got) > 200 || !strings.Contains(string(*got), "-32601") {
			t.Errorf("it is told %.300v", got)
		}
	})
}

// SPEC D8: a server that can speak only 2026-07-28 has all of its startup_timeout to say so.
func TestD8ASlowServerOfTheNewestVersionStarts(t *testing.T) {
	asServerWith(t, func(r *manifest.Runtime) {
		r.Protocol, r.StartupTimeout = manifest.ProtocolStateless, time.Minute
	}, func(p *scripted, m asked) bool {
		if m.Method != "server/discover" {
			return false
		}
		time.Sleep(30 * time.Second) // in a bubble
		p.answers(m, `{"supportedVersions":["2026-07-28"],"capabilities":{}}`)
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		time.Sleep(40 * time.Second)
		if life := c.Life(); life.State != "READY" {
			t.Errorf("it is %+v", life)
		}
	})
}
