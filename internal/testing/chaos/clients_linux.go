package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// lostAfter is when an answer that has not come is lost: every call has its end
// long before.
const lostAfter = callTimeout + 22*time.Second

// crowd are the clients of a run.
type crowd struct {
	w        *world
	http     *http.Client
	ids      atomic.Int64
	sessions []*session
}

func newCrowd(w *world) *crowd {
	c := &crowd{w: w, http: httpAs(honestToken)}
	for range 3 {
		c.sessions = append(c.sessions, &session{crowd: c})
	}
	return c
}

// callers is how many callers each tool has: one without sessions, one with.
const callers = 2

// storm lets all clients call until ctx ends, and returns when all calls have.
func (c *crowd) storm(ctx context.Context, r round, spared func(string) bool) {
	var all sync.WaitGroup
	for i, s := range sorts() {
		for n := range callers {
			dice := rand.New(rand.NewPCG(c.w.opts.seed^uint64(r.number)<<32, uint64(i*callers+n)))
			all.Go(func() {
				for ctx.Err() == nil {
					c.callOnce(ctx, dice, s, n, spared(s.name))
					wait(ctx, time.Duration(dice.IntN(60))*time.Millisecond)
				}
			})
		}
	}
	all.Wait()
}

// callOnce makes one call, as the dice want it.
func (c *crowd) callOnce(ctx context.Context, dice *rand.Rand, s sort, n int, spared bool) {
	r := c.ask(dice, s, spared)
	cl := &client{http: c.http, url: c.w.life().url}
	if n > 0 {
		if held := c.sessions[dice.IntN(len(c.sessions))].client(); held != nil {
			cl = held
		}
	}
	// The storm's end does not end the call.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), lostAfter)
	defer cancel()
	left := dice.IntN(100) < 2
	if left {
		time.AfterFunc(time.Duration(dice.IntN(100))*time.Millisecond, cancel) // a client that goes in the middle
	}
	o := cl.call(own, s, r, c.ids.Add(1))
	if left && o.lost != nil {
		c.w.book.count(c.w.book.outcomes, "left by its client", 1)
		return
	}
	if errors.Is(o.lost, context.DeadlineExceeded) && !c.w.book.excusesAll() {
		c.w.book.violated("lost", "call %s of %s (%q) has no answer after %s", r.Nonce, s.name, r.Do, lostAfter)
	}
	c.w.book.judge(o, spared)
}

// ask makes up a request. What would harm the tool is not asked of a spared one.
func (c *crowd) ask(dice *rand.Rand, s sort, spared bool) request {
	r := request{Nonce: fmt.Sprintf("n%d-%d", c.w.book.number(), c.ids.Add(1))}
	switch roll := dice.IntN(1000); {
	case roll < 100:
		r.MS = dice.IntN(150)
	case roll < 200:
		r.Pad = strings.Repeat("x", dice.IntN(200<<10))
	case roll < 300:
		r.Fill = dice.IntN(200 << 10)
	case roll < 320:
		r.Do = "twice"
	case roll < 340:
		r.Do = "stray"
	case roll < 360:
		r.Do = "junk"
	case roll < 380:
		r.Do = "slowly"
	case roll < 390 && !spared:
		r.Do = "die"
	case roll < 420 && !spared:
		r.Do = "child"
	case roll < 440 && !spared:
		r.Do = "daemon"
	}
	if s.kind == aSimpleTool && (r.Do == "child" || r.Do == "daemon") {
		r.Do = "" // it may outlive its tool, as it may under a shell
	}
	return r
}

// session is a client that keeps its session for as long as Orla lives.
type session struct {
	crowd *crowd

	mu      sync.Mutex // guards what follows
	held    *client
	changes int // how often it was told that the list of tools has changed
}

// client is the session's client; nil while it has no session.
func (s *session) client() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil && s.held.url != s.crowd.w.life().url {
		return nil // of an Orla that is over
	}
	return s.held
}

func (s *session) told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes
}

// keep opens a session with each Orla and follows its stream, which ends when
// Orla does and never before.
func (s *session) keep(ctx context.Context) {
	for ctx.Err() == nil {
		w := s.crowd.w
		l := w.life()
		c := &client{http: s.crowd.http, url: l.url}
		if err := c.open(ctx); err != nil {
			if !w.book.excusesAll() && ctx.Err() == nil && !l.isOver() {
				w.book.violated("session", "opening one: %v", err)
			}
			wait(ctx, 50*time.Millisecond)
			continue
		}
		err := c.listen(ctx, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.held = c
		}, func(method string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if method == "notifications/tools/list_changed" {
				s.changes++
			}
		})
		s.mu.Lock()
		s.held = nil
		s.mu.Unlock()
		if errors.Is(err, errLeak) || errors.Is(err, errAsked) {
			w.book.violated("tenant", "a session: %v", err)
		} else if ctx.Err() == nil && !l.isOver() && !w.book.excusesAll() {
			w.book.violated("session", "the stream of a session ended: %v", err)
		}
		wait(ctx, 20*time.Millisecond)
	}
}
