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

// council is replicas whose calls need approvals, and what is known of these.
type council struct {
	*fleet
	ran string // a file with the arguments of each call that ran

	known sync.Mutex // guards the fields that follow
	args  map[string]string
	lives int // replicas that were killed
	cuts  int // times that the API server was killed
}

func newCouncil(t *testing.T) *council {
	t.Helper()
	f := prepareFleet(t)
	c := &council{fleet: f, ran: filepath.Join(t.TempDir(), "ran"), args: map[string]string{}}
	testkit.WriteTool(t, f.tools, "note", "#!/bin/sh\nread -r args\nprintf '%s\\n' \"$args\" >>"+c.ran+"\n")
	rule := wantsApproval("note", "operator") + "  tool_ref: note\n"
	if err := os.WriteFile(filepath.Join(f.tools, "rule.yaml"), []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	f.orla = "approvals: {same_user: true, ttl: 5m}\n"
	for range 3 {
		f.all = append(f.all, f.start())
	}
	return c
}

// at returns a replica, and what speaks with its control socket.
func (c *council) at(i int) (*running, *control.Client) {
	c.mu.Lock()
	o := c.all[i%len(c.all)]
	c.mu.Unlock()
	socket, _ := c.sockets.Load(o)
	return o, control.NewClient(socket.(string)) //nolint:forcetypeassert // start stores it
}

// disturbed counts what was killed.
func (c *council) disturbed() (lives, cuts int) {
	c.known.Lock()
	defer c.known.Unlock()
	return c.lives, c.cuts
}

// call makes a call at a replica, and returns how it ended: "" if it ran.
func (c *council) call(ctx context.Context, i int, args string) string {
	o, _ := c.at(i)
	a, err := o.postWithin(ctx, "tools/call", `{"name":"note","arguments":`+args+`}`)
	switch {
	case err != nil:
		return err.Error()
	case a.Error != nil:
		return a.Error.Message
	case a.Result.IsError:
		return fmt.Sprint(a.Result.Meta["tool_code"], " ", a.Result.Content)
	}
	return ""
}

// asked waits until a replica lists a question about some arguments, but for those of ids, and returns it.
func (c *council) asked(ctx context.Context, i int, args string, but ...string) (found control.Approval, _ error) {
	for ctx.Err() == nil {
		_, api := c.at(i)
		for line, err := range api.FollowApprovals(ctx, control.ApprovalQuery{Phase: "Pending"}) {
			var a control.Approval
			if err != nil || json.Unmarshal(line, &a) != nil || slices.Contains(but, a.ID) {
				continue
			}
			c.known.Lock()
			of, known := c.args[a.ID]
			c.known.Unlock()
			if !known {
				whole, err := api.Approval(ctx, a.ID)
				if err != nil {
					continue
				}
				of = string(whole.Arguments)
				c.known.Lock()
				c.args[a.ID] = of
				c.known.Unlock()
			}
			if of == args {
				return a, nil
			}
		}
		i++
		<-time.After(20 * time.Millisecond)
	}
	return found, fmt.Errorf("%s: nobody is asked: %w", args, context.Cause(ctx))
}

// decide decides at a replica, or at another one until it counts.
func (c *council) decide(ctx context.Context, i int, a control.Approval, approve bool) error {
	for {
		var err error
		_, api := c.at(i)
		want := "Denied"
		if approve {
			want = "Approved"
			_, err = api.Approve(ctx, a.ID, control.ApproveRequest{Digest: a.Digest})
		} else {
			_, err = api.Deny(ctx, a.ID, control.DenyRequest{Reason: "no"})
		}
		if err == nil {
			return nil
		}
		if got, readErr := api.Approval(ctx, a.ID); readErr == nil && got.Phase == want {
			return nil // an attempt whose answer was lost
		}
		i++
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("decide about %s: %w", a.ID, err)
		}
	}
}

// repeat makes a call at one replica after the other until it ends in one of some ways.
func (c *council) repeat(ctx context.Context, i int, args string, ends ...string) error {
	for ; ; i++ {
		once, cancel := context.WithTimeout(ctx, 20*time.Second)
		got := c.call(once, i, args)
		cancel()
		for _, end := range ends {
			if got == end || end != "" && strings.HasPrefix(got, end) {
				return nil
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%s: %q", args, got)
		}
	}
}

// leave makes a call at a replica, waits until another one asks, and hangs up.
func (c *council) leave(ctx context.Context, i int, args string) (control.Approval, error) {
	calling, hangUp := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for at := i; calling.Err() == nil; at++ {
			c.call(calling, at, args)
			select {
			case <-calling.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	a, err := c.asked(ctx, i+1, args)
	hangUp()
	<-over
	return a, err
}

// councils are the histories. Each returns how often the call may have run, and has to have if nothing was killed.
var councils = map[string]func(c *council, ctx context.Context, i int, args string) (runs int, _ error){
	"waits at one, and is approved at another": func(c *council, ctx context.Context, i int, args string) (int, error) {
		done := make(chan error, 1)
		go func() {
			err := c.repeat(ctx, i, args, "")
			done <- err
		}()
		a, err := c.asked(ctx, i+1, args)
		if err != nil {
			return 0, err
		}
		err = c.decide(ctx, i+2, a, true)
		for but := a.ID; ; {
			select {
			case ran := <-done:
				return 1, errors.Join(err, ran)
			case <-time.After(5 * time.Second): // the approval may have been lost with a replica: it asks again
			}
			again, cancel := context.WithTimeout(ctx, time.Second)
			if a, err := c.asked(again, i, args, but); err == nil {
				if lives, _ := c.disturbed(); lives == 0 {
					cancel()
					return 1, fmt.Errorf("%s: asked again, and no replica was killed", args)
				}
				_ = c.decide(ctx, i, a, false)
				cancel()
				return -1, nil // at most once: not more approvals than one
			}
			cancel()
		}
	},
	"approved when its client is gone, and made at a third": func(c *council, ctx context.Context, i int, args string) (int, error) {
		a, err := c.leave(ctx, i, args)
		if err != nil {
			return 0, err
		}
		if err := c.decide(ctx, i+1, a, true); err != nil {
			return 0, err
		}
		lives, _ := c.disturbed()
		once, cancel := context.WithTimeout(ctx, 40*time.Second)
		defer cancel()
		if err = c.repeat(once, i+2, args, ""); err != nil {
			if now, _ := c.disturbed(); now != lives {
				return -1, nil
			}
		}
		return 1, err
	},
	"made at all at once": func(c *council, ctx context.Context, i int, args string) (int, error) {
		calling, hangUp := context.WithCancel(ctx)
		defer hangUp()
		var ran atomic.Int64
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() {
				if err := c.repeat(calling, n, args, ""); err == nil {
					ran.Add(1)
				}
			})
		}
		a, err := c.asked(ctx, i, args)
		if err != nil {
			return 0, err
		}
		if err := c.decide(ctx, i+1, a, true); err != nil {
			return 0, err
		}
		again, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err = c.asked(again, i+2, args, a.ID) // the others ask again
		hangUp()
		all.Wait()
		if lives, cuts := c.disturbed(); lives+cuts > 0 || ran.Load() == 0 { // its answer may not have come before the client was gone
			return -1, nil
		}
		return int(ran.Load()), err
	},
	"denied at another, and made at a third": func(c *council, ctx context.Context, i int, args string) (int, error) {
		a, err := c.leave(ctx, i, args)
		if err != nil {
			return 0, err
		}
		if err := c.decide(ctx, i+1, a, false); err != nil {
			return 0, err
		}
		err = c.repeat(ctx, i+2, args, "approval_denied")
		return 0, err
	},
	"made elsewhere with a byte that differs": func(c *council, ctx context.Context, i int, args string) (int, error) {
		a, err := c.leave(ctx, i, args)
		if err != nil {
			return 0, err
		}
		if err := c.decide(ctx, i+1, a, true); err != nil {
			return 0, err
		}
		_, err = c.leave(ctx, i+2, strings.Replace(args, `"v":0`, `"v":1`, 1))
		return 0, err
	},
}

// enough reports whether enough was killed.
func (c *council) enough() bool {
	lives, cuts := c.disturbed()
	want := 2
	if needs.More() {
		want = 3
	}
	return lives >= want && cuts >= want
}

// disturb kills replicas and the API server, one after the other, until over is closed.
func (c *council) disturb(r *rand.Rand, over <-chan struct{}) {
	for n := r.IntN(2); ; n++ {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(1+r.IntN(3)) * time.Second):
		}
		if n%2 == 0 {
			c.known.Lock()
			c.lives++
			c.known.Unlock()
			c.end(r.IntN(3), syscall.SIGKILL)
			continue
		}
		c.known.Lock()
		c.cuts++
		c.known.Unlock()
		restart := c.cluster.Kill("kube-apiserver")
		<-time.After(time.Duration(1+r.IntN(3)) * time.Second) // its port is free by then
		restart()
		testkit.Eventually(c.t, "the API server is back", func() bool {
			_, err := c.cluster.Try("", "get", "--raw", "/readyz")
			return err == nil
		})
	}
}

// SPEC P4, SPEC-TOOLS 8.7: over random histories of calls that are asked about, decided and made again at different
// replicas, which are killed like the API server, what was approved runs once and nothing else runs.
func TestP4ApprovalsOfAllReplicas(t *testing.T) {
	needs.Time(t, "starts many replicas")
	t.Parallel()
	c := newCouncil(t)
	names := slices.Sorted(maps.Keys(councils))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var serial atomic.Int64
	var mu sync.Mutex
	want, counts := map[string]int{}, map[string]int{}
	for _, part := range []struct {
		calm   bool
		rounds int
	}{{true, needs.Rounds(10, 12)}, {false, needs.Rounds(10, 24)}} {
		var workers, disturbing sync.WaitGroup
		over := make(chan struct{})
		if !part.calm {
			disturbing.Go(func() { c.disturb(rand.New(rand.NewPCG(seed, 99)), over) })
		}
		// Five histories leave four records that wait or are good, and this caller may have 256 of them: the time of
		// all kills is to be enough for fewer than 320.
		pace := time.NewTicker(250 * time.Millisecond)
		var left atomic.Int64
		left.Store(int64(part.rounds))
		for w := range 5 {
			r := rand.New(rand.NewPCG(seed, uint64(w)))
			workers.Go(func() {
				for !t.Failed() && (left.Add(-1) >= 0 || !part.calm && !c.enough()) {
					if !part.calm {
						<-pace.C
					}
					n := serial.Add(1)
					name := names[int(n)%len(names)]
					args := fmt.Sprintf(`{"h":%d,"v":0}`, n)
					ctx, cancel := context.WithTimeout(t.Context(), 4*testkit.Patience)
					runs, err := councils[name](c, ctx, r.IntN(3), args)
					cancel()
					mu.Lock()
					want[args] = runs
					counts[name]++
					mu.Unlock()
					if err != nil {
						t.Errorf("calm %v: %s: %v", part.calm, name, err)
					}
				}
			})
		}
		workers.Wait()
		close(over)
		disturbing.Wait()
		pace.Stop()
	}
	lives, cuts := c.disturbed()
	t.Logf("%v; %d replicas and %d times the API server were killed", counts, lives, cuts)
	text, err := os.ReadFile(c.ran)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for line := range strings.Lines(string(text)) {
		got[strings.TrimSpace(line)]++
	}
	for args, n := range got {
		if runs, made := want[args]; !made || n > 1 || runs >= 0 && n != runs {
			t.Errorf("%s ran %d times, and had to run %d times", args, n, runs)
		}
	}
	for args, runs := range want {
		if runs > 0 && got[args] != runs {
			t.Errorf("%s ran %d times, and had to run %d times", args, got[args], runs)
		}
	}
}
