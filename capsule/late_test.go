package capsule

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// SPEC N2: a capsule that works on one call after the other is not sent more calls of a caller
// that gives them up than of one that waits: another caller waits for as few.
func TestN2CallsThatAreGivenUpTakeTheirPlace(t *testing.T) {
	const each, given = time.Second, 20
	type work struct {
		p *scripted
		m asked
	}
	sent := sync.OnceValue(func() chan work { return make(chan work, 4*given) }) // what is in the pipe of its stdin
	asServer(t, func(p *scripted, m asked) bool {
		if m.Method != "tools/call" && m.Method != "ping" {
			return false
		}
		sent() <- work{p, m}
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		defer func() { close(sent()) }()
		go func() {
			for w := range sent() {
				if w.m.Method == "tools/call" {
					time.Sleep(each)
				}
				w.p.answers(w.m, `{"content":[]}`)
			}
		}()
		time.Sleep(5 * time.Second) // until it is READY
		bob := func() time.Duration {
			began := time.Now()
			ctx, giveUp := context.WithTimeout(t.Context(), time.Minute)
			defer giveUp()
			if _, err := c.Call(ctx, peer.Call{Tool: "walker", Owner: turns.Owner{Caller: "bob"}}); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		bob()
		for range given {
			ctx, giveUp := context.WithTimeout(t.Context(), 4*time.Millisecond)
			if _, err := c.Call(ctx, peer.Call{Tool: "walker", Owner: turns.Owner{Caller: "alice"}}); err == nil {
				t.Error("a call is answered at once")
			}
			giveUp()
		}
		if took := bob(); took > 4*each {
			t.Errorf("a call waits %s, behind %d that were given up, of %s each", took, given, each)
		}
		// All places come back.
		time.Sleep(time.Minute)
		if n := c.places.Free(); n != 0 || c.places.Waiting() != 0 {
			t.Errorf("%d are free, %d wait", n, c.places.Waiting())
		}
		if took := bob(); took > 2*each {
			t.Errorf("a call alone takes %s", took)
		}
	})
}

// SPEC N2: max_concurrency holds for calls that were given up, until their process is known
// not to work on them: by an answer, by that of a ping, or when their timeout has passed again.
func TestN2TheConcurrencyHoldsForCallsThatAreGivenUp(t *testing.T) {
	const each = 4 * time.Second // less than the timeout
	for name, c := range map[string]struct {
		stops       bool // when it is told to; it answers nothing then
		least, most time.Duration
	}{
		"one that answers late":        {false, each - time.Second, each + time.Second},
		"one that stops without words": {true, 0, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			asServer(t, func(p *scripted, m asked) bool {
				switch {
				case m.Method == "tools/call" && c.stops:
					return true // it stops at once, and says nothing
				case m.Method == "tools/call":
					time.Sleep(each)
					p.answers(m, `{"content":[]}`)
				default:
					return false
				}
				return true
			}, func(t *testing.T, k *Capsule, _ *journal) {
				k.places = turns.NewQueue(1, 0)
				k.lateCall = k.places.Give
				time.Sleep(5 * time.Second)
				ctx, giveUp := context.WithTimeout(t.Context(), time.Millisecond)
				defer giveUp()
				if _, err := k.Call(ctx, peer.Call{Tool: "walker"}); err == nil {
					t.Fatal("the call is answered")
				}
				began := time.Now()
				if err := k.places.Take(t.Context(), turns.Owner{}); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.least || took > c.most {
					t.Errorf("the place is given back after %s", took)
				}
				k.places.Give(turns.Owner{})
			})
		})
	}
}

// SPEC N2: of a capsule that works on several calls at once, the answer of a ping proves nothing. It is
// known by an answer that comes after a call counted as over: from then on only answers count.
func TestN2ACallOutlivesThePingOfACapsuleThatWorksSideBySide(t *testing.T) {
	const each = 20 * time.Second
	asServer(t, func(p *scripted, m asked) bool {
		if m.Method != "tools/call" {
			return false // a ping is answered at once
		}
		go func() {
			time.Sleep(each)
			p.answers(m, `{"content":[]}`)
		}()
		return true
	}, func(t *testing.T, c *Capsule, _ *journal) {
		back := givenUp(t, c)
		defer time.Sleep(2 * each) // all end
		if took := back(); took > time.Second {
			t.Errorf("the first time, the place is given back after %s", took)
		}
		time.Sleep(each + time.Second) // until the answer has come
		for range 3 {
			if took := back(); took < each-time.Second || took > each+time.Second {
				t.Errorf("the place is given back after %s; each call takes %s", took, each)
			}
		}
	})
}

// SPEC N2: a capsule that takes no pings, and says nothing of a call that was given up, is waited for a few
// seconds, and no longer: others wait for the place.
func TestN2SilenceAfterACallIsGivenUpIsShort(t *testing.T) {
	inPlay(t, func(r *manifest.Runtime) { r.Declared = true }, func(p *scripted, m asked) {
		if m.Method == "" {
			p.says(`{"jsonrpc":"2.0","method":"orla.hello","params":{"name":"walker","version":"1.0.0"}}`)
		}
	}, func(t *testing.T, c *Capsule, _ *journal) {
		back := givenUp(t, c)
		if took := back(); took < time.Second || took > 10*time.Second {
			t.Errorf("the place is given back after %s", took)
		}
	})
}

// givenUp gives a capsule in a bubble one place. The function that it returns gives up a call, and returns
// after how long its place is free.
func givenUp(t *testing.T, c *Capsule) func() time.Duration {
	time.Sleep(5 * time.Second) // until it is READY
	synctest.Wait()
	c.tool.Run.Timeout = time.Minute
	c.places = turns.NewQueue(1, 0)
	c.lateCall = c.places.Give
	return func() time.Duration {
		t.Helper()
		ctx, giveUp := context.WithTimeout(t.Context(), time.Millisecond)
		defer giveUp()
		if _, err := c.Call(ctx, peer.Call{Tool: "walker"}); err == nil {
			t.Fatal("the call is answered")
		}
		began := time.Now()
		if err := c.places.Take(t.Context(), turns.Owner{}); err != nil {
			t.Fatal(err)
		}
		defer c.places.Give(turns.Owner{})
		return time.Since(began)
	}
}
