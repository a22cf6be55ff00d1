package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// historian makes calls that need an approval, decides about them, and knows which of them may have run.
type historian struct {
	t      *testing.T
	dir    string
	policy int

	paused sync.RWMutex // held for writing while a history needs Orla for itself
	mu     sync.Mutex   // guards the fields that follow
	o      *running
	api    *control.Client
	life   int // of Orla
	ended  context.CancelFunc
	asked  map[string][]control.Approval // records by the arguments
	news   chan struct{}                 // closed when there is a new one
	allows map[string]int                // approvals by the arguments
	ran    map[string]int                // how often a call of the arguments has to have run; -1 if Orla was killed meanwhile

	next atomic.Int64
}

func newHistorian(t *testing.T) *historian {
	t.Helper()
	h := &historian{t: t, dir: t.TempDir(), asked: map[string][]control.Approval{}, news: make(chan struct{}), allows: map[string]int{}, ran: map[string]int{}}
	testkit.WriteTool(t, filepath.Join(h.dir, "tools"), "note", "#!/bin/sh\nread -r args\nprintf '%s\\n' \"$args\" >>"+filepath.Join(h.dir, "ran")+"\n")
	h.rule()
	h.write("orla.yaml", "tools_dir: tools\nlisten: 127.0.0.1:0\nmax_concurrent_calls: 8\napprovals: {same_user: true, ttl: 30s}\n")
	h.start(startOrla(t, h.dir, "serve"))
	return h
}

func (h *historian) write(name, text string) {
	if err := os.WriteFile(filepath.Join(h.dir, name), []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// rule writes the rule in a new version.
func (h *historian) rule() {
	h.policy++
	h.write("tools/rule.yaml", strings.Replace(wantsApproval("note", "operator"), "{name: note}", fmt.Sprintf("{name: v%d}", h.policy), 1)+"  tool_ref: note\n")
}

// start follows an Orla that was started.
func (h *historian) start(o *running) {
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	status := o.status()
	ctx, cancel := context.WithCancel(context.Background())
	h.mu.Lock()
	h.o, h.api, h.ended = o, control.NewClient(status.Socket), cancel
	h.life++
	api := h.api
	h.mu.Unlock()
	go func() {
		for line, err := range api.FollowApprovals(ctx, control.ApprovalQuery{Follow: true}) {
			var a control.Approval
			if err != nil || json.Unmarshal(line, &a) != nil {
				return
			}
			if a.Phase != "Pending" {
				continue
			}
			whole, err := api.Approval(ctx, a.ID)
			if err != nil {
				return
			}
			h.mu.Lock()
			h.asked[string(whole.Arguments)] = append(h.asked[string(whole.Arguments)], *whole)
			close(h.news)
			h.news = make(chan struct{})
			h.mu.Unlock()
		}
	}()
}

// end ends Orla by a signal, and starts another one.
func (h *historian) end(by syscall.Signal) {
	h.mu.Lock()
	o := h.o
	h.ended()
	h.mu.Unlock()
	o.signal(by)
	o.wait()
	h.start(startAs(h.t, o.home(), o.cmd.Dir, o.cmd.Args...))
}

// upgrade has Orla run its program again.
func (h *historian) upgrade() {
	h.mu.Lock()
	o := h.o
	h.ended()
	h.mu.Unlock()
	o.mustOrla("upgrade")
	h.start(o)
}

// errKilled is why a history ends early.
var errKilled = errors.New("killed")

// call makes a call, and returns the code of its error; "" if it ran. hangUp ends it as a client that is gone.
func (h *historian) call(args string) (ended <-chan string, hangUp context.CancelFunc) {
	h.mu.Lock()
	o := h.o
	h.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	done := make(chan string, 1)
	go func() {
		a, err := o.postWithin(ctx, "tools/call", `{"name":"note","arguments":`+args+`}`)
		switch {
		case err != nil:
			done <- err.Error()
		case a.Error != nil:
			done <- a.Error.Message
		case a.Result.IsError:
			done <- fmt.Sprint(a.Result.Meta["tool_code"], " ", a.Result.Content)
		default:
			done <- ""
		}
	}()
	return done, cancel
}

// question waits for the n-th record of some arguments, and returns it.
func (h *historian) question(args string, n int, life int) (control.Approval, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	return h.questionWithin(ctx, args, n, life)
}

func (h *historian) questionWithin(ctx context.Context, args string, n int, life int) (control.Approval, error) {
	for {
		h.mu.Lock()
		all, news, now := h.asked[args], h.news, h.life
		h.mu.Unlock()
		switch {
		case len(all) >= n:
			return all[n-1], nil
		case now != life:
			return control.Approval{}, errKilled
		}
		select {
		case <-news:
		case <-time.After(100 * time.Millisecond): // Orla may have been killed
		case <-ctx.Done():
			return control.Approval{}, fmt.Errorf("%s: there is no question %d", args, n)
		}
	}
}

// decide decides about a record, and counts an approval.
func (h *historian) decide(args string, a control.Approval, approve bool, ttl string) error {
	h.mu.Lock()
	api := h.api
	if approve {
		h.allows[args]++ // before anything can follow from it
	}
	h.mu.Unlock()
	var err error
	if approve {
		_, err = api.Approve(context.Background(), a.ID, control.ApproveRequest{Digest: a.Digest, TTL: ttl})
	} else {
		_, err = api.Deny(context.Background(), a.ID, control.DenyRequest{Reason: "no"})
	}
	return err
}

// expect notes how often a call of some arguments has to have run.
func (h *historian) expect(args string, runs int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ran[args] = runs
}

// oneCall is a call, with what happens to it.
type oneCall struct {
	*historian
	life  int
	args  string
	asked int // questions so far
	runs  int
}

// fail returns an error unless got is what was wanted.
func (one *oneCall) fail(what, got, want string) error {
	if strings.HasPrefix(got, want) && (want != "" || got == "") {
		return nil
	}
	return fmt.Errorf("%s: %s: got %q, want %q", one.args, what, got, want)
}

// asks makes the call, and waits until somebody is asked.
func (one *oneCall) asks() (control.Approval, <-chan string, context.CancelFunc, error) {
	ended, hangUp := one.call(one.args)
	one.asked++
	a, err := one.question(one.args, one.asked, one.life)
	return a, ended, hangUp, err
}

// leaves makes the call, and hangs up when somebody is asked.
func (one *oneCall) leaves() (control.Approval, error) {
	a, ended, hangUp, err := one.asks()
	hangUp()
	<-ended
	return a, err
}

// forgotten makes the call as leaves does, and lets the question expire: few may wait at a time.
func (one *oneCall) forgotten() error {
	a, err := one.leaves()
	if err != nil {
		return err
	}
	_, err = one.api.Extend(context.Background(), a.ID, control.ExtendRequest{TTL: "1s"})
	return err
}

// again makes the call once more, which has to run at once: unless Orla has noticed too late that the client was gone,
// and the call before has run.
func (one *oneCall) again() error {
	ended, hangUp := one.call(one.args)
	defer hangUp()
	one.runs++
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	asked := make(chan error, 1)
	go func() {
		_, err := one.questionWithin(ctx, one.args, one.asked+1, one.life)
		asked <- err
	}()
	select {
	case got := <-ended:
		return one.fail("again", got, "")
	case err := <-asked:
		if err != nil {
			return fmt.Errorf("%s: asked again: %w", one.args, err)
		}
		one.asked++
		for !slices.Contains(one.lines(), one.args) {
			select {
			case got := <-ended: // the call before had the approval when it was made, and has given it back
				return one.fail("again", got, "")
			case <-time.After(10 * time.Millisecond):
			}
		}
		return nil
	}
}

// lines returns the arguments of the calls that ran.
func (h *historian) lines() []string {
	text, err := os.ReadFile(filepath.Join(h.dir, "ran"))
	if err != nil {
		return nil // no call has run yet
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

// The histories. Each returns what was not as it has to be.
var histories = map[string]func(*oneCall, *rand.Rand) error{
	"approved while it waits": func(one *oneCall, _ *rand.Rand) error {
		a, ended, hangUp, err := one.asks()
		defer hangUp()
		if err != nil {
			return err
		}
		one.runs++
		return errors.Join(one.decide(one.args, a, true, ""), one.fail("the call", <-ended, ""))
	},
	"denied, and made again": func(one *oneCall, _ *rand.Rand) error {
		a, ended, hangUp, err := one.asks()
		defer hangUp()
		if err != nil {
			return err
		}
		if err := errors.Join(one.decide(one.args, a, false, ""), one.fail("the call", <-ended, "approval_denied")); err != nil {
			return err
		}
		ended, _ = one.call(one.args)
		return one.fail("again", <-ended, "approval_denied")
	},
	"approved when its client is gone, made again, and once more": func(one *oneCall, _ *rand.Rand) error {
		a, err := one.leaves()
		if err != nil {
			return err
		}
		if err := errors.Join(one.decide(one.args, a, true, ""), one.again()); err != nil {
			return err
		}
		return one.forgotten()
	},
	"made with a byte that differs": func(one *oneCall, r *rand.Rand) error {
		a, err := one.leaves()
		if err != nil {
			return err
		}
		if err := one.decide(one.args, a, true, ""); err != nil {
			return err
		}
		other := &oneCall{historian: one.historian, life: one.life, args: strings.Replace(one.args, `"v":0`, fmt.Sprintf(`"v":%d`, 1+r.IntN(9)), 1)}
		one.expect(other.args, 0)
		if err := other.forgotten(); err != nil {
			return err
		}
		return one.again()
	},
	"approved for too short": func(one *oneCall, _ *rand.Rand) error {
		a, err := one.leaves()
		if err != nil {
			return err
		}
		if err := one.decide(one.args, a, true, "1s"); err != nil {
			return err
		}
		expired := time.After(1100 * time.Millisecond)
		<-expired
		return one.forgotten()
	},
	"two decide at once": func(one *oneCall, _ *rand.Rand) error {
		a, ended, hangUp, err := one.asks()
		defer hangUp()
		if err != nil {
			return err
		}
		said := make(chan error)
		go func() { said <- one.decide(one.args, a, true, "") }()
		denied := one.decide(one.args, a, false, "")
		approved := <-said
		if (approved == nil) == (denied == nil) {
			return fmt.Errorf("%s: both decisions count, or none: %v, %v", one.args, approved, denied)
		}
		if denied == nil {
			return one.fail("the call", <-ended, "approval_denied")
		}
		one.runs++
		return one.fail("the call", <-ended, "")
	},
	"made twice at once": func(one *oneCall, _ *rand.Rand) error {
		a, first, hangUp, err := one.asks()
		defer hangUp()
		if err != nil {
			return err
		}
		second, leave := one.call(one.args)
		defer leave()
		if err := one.decide(one.args, a, true, ""); err != nil {
			return err
		}
		one.runs++
		var got string
		select {
		case got = <-first:
		case got = <-second:
		}
		one.asked++
		_, err = one.question(one.args, one.asked, one.life) // of the other one
		return errors.Join(one.fail("one of two", got, ""), err)
	},
	"Orla is killed between the approval and the call": func(one *oneCall, _ *rand.Rand) error {
		return one.alone(func() error {
			a, err := one.leaves()
			if err != nil {
				return err
			}
			if err := one.decide(one.args, a, true, ""); err != nil {
				return err
			}
			one.killed()
			if err := one.again(); err != nil {
				return err
			}
			one.killed()
			return one.forgotten()
		})
	},
	"Orla is stopped or upgraded between the approval and the call": func(one *oneCall, r *rand.Rand) error {
		return one.alone(func() error {
			a, err := one.leaves()
			if err != nil {
				return err
			}
			if err := one.decide(one.args, a, true, ""); err != nil {
				return err
			}
			if r.IntN(2) == 0 {
				one.end(syscall.SIGTERM)
			} else {
				one.upgrade()
			}
			one.life = one.lifeNow()
			return errors.Join(one.again(), one.forgotten())
		})
	},
	"Orla is killed while the call waits": func(one *oneCall, _ *rand.Rand) error {
		return one.alone(func() error {
			a, ended, hangUp, err := one.asks()
			defer hangUp()
			if err != nil {
				return err
			}
			one.killed()
			<-ended
			return errors.Join(one.decide(one.args, a, true, ""), one.again())
		})
	},
	"the rules change between the approval and the call": func(one *oneCall, _ *rand.Rand) error {
		return one.alone(func() error {
			a, err := one.leaves()
			if err != nil {
				return err
			}
			if err := one.decide(one.args, a, true, ""); err != nil {
				return err
			}
			one.rule()
			if _, err := one.api.Reload(context.Background(), control.ReloadRequest{}); err != nil {
				return err
			}
			return one.forgotten()
		})
	},
}

// alone runs a history for which all others pause or end, since it kills Orla or changes the rules.
func (one *oneCall) alone(do func() error) error {
	one.paused.RUnlock()
	one.paused.Lock()
	defer func() {
		one.paused.Unlock()
		one.paused.RLock()
	}()
	one.life = one.lifeNow()
	return do()
}

// killed ends Orla as the kernel would, and goes on with the next one.
func (one *oneCall) killed() {
	one.end(syscall.SIGKILL)
	one.life = one.lifeNow()
}

func (h *historian) lifeNow() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.life
}

// SPEC-TOOLS 8.7: over random histories of calls, what was approved runs exactly once, and nothing else runs.
func TestT87RandomHistories(t *testing.T) {
	t.Parallel()
	needs.Time(t, "makes many calls")
	h := newHistorian(t)
	rounds := int64(needs.Rounds(30, 40))
	names := slices.Sorted(maps.Keys(histories))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	counts := map[string]int{}
	var workers sync.WaitGroup
	for w := range 8 {
		r := rand.New(rand.NewPCG(seed, uint64(w)))
		workers.Go(func() {
			for n := h.next.Add(1); n <= rounds && !t.Failed(); n = h.next.Add(1) {
				name := names[int(n)%len(names)]
				if (strings.HasPrefix(name, "Orla") || strings.HasPrefix(name, "the rules")) && r.IntN(max(4, int(rounds)/400)) > 0 {
					name = names[r.IntN(len(names))]
				}
				h.paused.RLock()
				one := &oneCall{historian: h, life: h.lifeNow(), args: fmt.Sprintf(`{"h":%d,"v":0}`, n)}
				err := histories[name](one, r)
				h.paused.RUnlock()
				h.expect(one.args, one.runs)
				h.mu.Lock()
				counts[name]++
				h.mu.Unlock()
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	workers.Wait()
	t.Log(counts)
	got := map[string]int{}
	for _, args := range h.lines() {
		got[args]++
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for args, n := range got {
		if n != h.ran[args] || n > h.allows[args] {
			t.Errorf("%s ran %d times; it was approved %d times, and had to run %d times", args, n, h.allows[args], h.ran[args])
		}
	}
	for args, n := range h.ran {
		if got[args] != n {
			t.Errorf("%s ran %d times, and had to run %d times", args, got[args], n)
		}
	}
}
