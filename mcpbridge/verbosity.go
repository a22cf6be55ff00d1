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

// tellTime bounds the time to tell peers something, and the wait of a client for it.
const tellTime = 5 * time.Second

// verbosity keeps which log messages clients want. A peer has one level for all clients, so it
// is told the most verbose one; each client gets only what it asked for.
type verbosity struct {
	telling *turns.Queue // of who tells peers

	mu   sync.Mutex        // guards the fields that follow
	of   map[string]int    // how many sessions have set a level
	once string            // the most verbose level that a request of the stateless era asked for; "" for none
	sent string            // the level that peers were told last; "" for none
	who  []supervisor.Peer // the peers that were told
}

func newVerbosity() *verbosity {
	return &verbosity{telling: turns.NewQueue(1, 0), of: map[string]int{}}
}

// set sets the level of a session.
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

// leave removes the level of a session that has ended.
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

// ask notes the level of one request. It is never forgotten: more requests will follow.
func (v *verbosity) ask(level string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.once = moreVerbose(v.once, level)
}

// news returns the level that peers have to be told; "" if all of them know it.
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
	return slices.Equal(some, others) || // usually
		!slices.ContainsFunc(some, func(p supervisor.Peer) bool { return !slices.Contains(others, p) })
}

// knows notes which level peers have been told.
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

// wantsLevel calls note, which sets the level of a client, and tells the peers. It goes on when
// the client stops waiting.
func (b *Bridge) wantsLevel(ctx context.Context, owner turns.Owner, note func()) {
	wait, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	note()
	b.tellLevel(wait, context.WithoutCancel(ctx), owner)
}

// tellLevel tells the peers the level, if it is new to any of them. wait bounds the wait for the
// lock, which counts as owner's.
func (b *Bridge) tellLevel(wait, ctx context.Context, owner turns.Owner) {
	if err := b.tellInTurn(wait, b.verbosity.telling, owner, b.levelNews, func() error { return b.sayLevel(ctx) }); err != nil {
		b.log.Debug("tell peers which log messages are wanted", "err", err)
	}
}

// levelNews reports whether there is a level that the peers have to be told.
func (b *Bridge) levelNews() bool { return b.verbosity.news(b.catalog.Catalog().Loggers()) != "" }

// sayLevel tells the peers the level, if it is new. The caller has the lock.
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

// levelPatience bounds how long a request of the stateless era waits until peers know its level:
// a peer that does not answer must not delay requests to the others.
const levelPatience = 100 * time.Millisecond

// asksLevel notes the level of a request of the stateless era, and tells the peers.
func (b *Bridge) asksLevel(ctx context.Context, r *Request) {
	if !r.newest || r.level == "" {
		return
	}
	b.verbosity.ask(r.level)
	if !b.levelNews() {
		return
	}
	done := make(chan struct{})
	ctx = context.WithoutCancel(ctx)
	go func() {
		defer close(done)
		defer recovered.To(b.log, "tell peers a log level", nil)
		b.tellLevel(atOnce(ctx), ctx, r.from.As)
	}()
	patience := time.NewTimer(levelPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
}
