package mcpbridge

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

// tellTime bounds how long peers are told something, and how long a client waits
// for it.
const tellTime = 5 * time.Second

// verbosity knows which log messages clients want. A peer has one level for all
// of them, so it is told the most verbose; each client gets what it asked for.
type verbosity struct {
	telling tellLock // of who tells peers

	mu   sync.Mutex        // guards the fields that follow
	of   map[string]int    // how many sessions have set a level
	once string            // the most verbose that a request of the stateless era asked for; "" for none
	sent string            // what peers know; "" for nothing
	who  []supervisor.Peer // those that do
}

func newVerbosity() *verbosity {
	return &verbosity{telling: newTellLock(), of: map[string]int{}}
}

// set notes what a session wants.
func (v *verbosity) set(s *client.Session, level string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, ok := s.SetLevel(level)
	if !ok {
		return // it has ended
	}
	v.leaveLocked(before)
	v.of[level]++
}

// leave notes that a session that had set a level is over.
func (v *verbosity) leave(level string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.leaveLocked(level)
}

func (v *verbosity) leaveLocked(level string) {
	if level == "" {
		return
	}
	if v.of[level]--; v.of[level] == 0 {
		delete(v.of, level)
	}
}

// ask notes what one request wants. It is not forgotten: there will be more.
func (v *verbosity) ask(level string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.once = moreVerbose(v.once, level)
}

// news returns what the peers there are have to be told; "" for nothing that is
// new to any of them.
func (v *verbosity) news(peers []supervisor.Peer) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	most := v.once
	for level := range v.of {
		most = moreVerbose(most, level)
	}
	if most == v.sent && within(peers, v.who) {
		return ""
	}
	return most
}

// within reports whether all of some peers are among others.
func within(some, others []supervisor.Peer) bool {
	return slices.Equal(some, others) || // as a rule
		!slices.ContainsFunc(some, func(p supervisor.Peer) bool { return !slices.Contains(others, p) })
}

// knows notes what peers have been told.
func (v *verbosity) knows(level string, who []supervisor.Peer) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sent, v.who = level, who
}

func moreVerbose(a, b string) string {
	if a == "" || slices.Index(wire.Levels, b) < slices.Index(wire.Levels, a) {
		return b
	}
	return a
}

// wantsLevel notes which messages a client wants, and tells the peers. That goes
// on when the client does not wait for it: nobody else would.
func (b *Bridge) wantsLevel(ctx context.Context, owner turns.Owner, note func()) {
	wait, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	note()
	b.tellLevel(wait, context.WithoutCancel(ctx), owner)
}

// tellLevel tells the peers the level that is wanted, if it is new to any. wait
// bounds how long it waits for its turn, which counts as owner's.
func (b *Bridge) tellLevel(wait, ctx context.Context, owner turns.Owner) {
	news := func() bool { return b.verbosity.news(b.catalog.Catalog().Loggers()) != "" }
	if err := b.tellInTurn(wait, b.verbosity.telling, owner, news, func() error { return b.sayLevel(ctx) }); err != nil {
		b.log.Debug("tell peers which log messages are wanted", "err", err)
	}
}

// sayLevel tells the peers what is news. The caller has the turn.
func (b *Bridge) sayLevel(ctx context.Context) error {
	peers := b.catalog.Catalog().Loggers()
	level := b.verbosity.news(peers)
	if level == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	_, err := b.catalog.Request(ctx, peer.Request{Method: wire.MethodSetLevel, Params: rawjson.Pair("level", level)})
	if err == nil {
		b.verbosity.knows(level, peers)
	}
	return err
}

// levelPatience bounds how long a request of the stateless era waits for peers to know the
// level that it has: one that does not answer must not delay what others are asked.
const levelPatience = 100 * time.Millisecond

// asksLevel notes the level that a request of the stateless era has.
func (b *Bridge) asksLevel(ctx context.Context, r *Request) {
	if !r.newest || r.level == "" {
		return
	}
	b.verbosity.ask(r.level)
	news := func() bool { return b.verbosity.news(b.catalog.Catalog().Loggers()) != "" }
	if !news() || !b.verbosity.telling.try() {
		return // who tells them now looks for news afterwards
	}
	done := make(chan struct{})
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(done)
		defer recovered.To(b.log, "tell peers a log level", nil)
		for first := true; first || news() && b.verbosity.telling.try(); first = false {
			err := func() error {
				defer b.verbosity.telling.give()
				return b.sayLevel(ctx)
			}()
			if err != nil {
				b.log.Debug("tell peers which log messages are wanted", "err", err)
				return
			}
		}
	}()
	patience := time.NewTimer(levelPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}
