package mcpbridge

import (
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/supervisor"
)

// metaLogLevel is where a request of the stateless era says which messages it wants.
const metaLogLevel = protocolPrefix + "logLevel"

// levels are those of log messages, from the most verbose on.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// tellTime bounds how long peers are told something, and how long a client waits
// for it.
const tellTime = 5 * time.Second

// verbosity knows which log messages clients want. A peer has one level for all
// of them, so it is told the most verbose; each client gets what it asked for.
type verbosity struct {
	living  func() iter.Seq[*mcp.ServerSession] // the sessions there are
	telling turn                                // of who tells peers

	mu   sync.Mutex        // guards the fields that follow
	of   map[string]string // what sessions have set, by their ids
	once string            // the most verbose that a request of the stateless era asked for; "" for none
	told string            // what peers know; "" for nothing
	who  []supervisor.Peer // those that do
}

func newVerbosity(living func() iter.Seq[*mcp.ServerSession]) *verbosity {
	return &verbosity{living: living, telling: newTurn(), of: map[string]string{}}
}

// wanted reports whether a session has set a level.
func (v *verbosity) wanted(session string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	_, ok := v.of[session]
	return ok
}

// level is what a session has set; "" for nothing.
func (v *verbosity) level(session string) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.of[session]
}

// set notes what a session wants, and forgets those that are not live any more.
// Were those looked at before the lock is taken, a session that begins meanwhile
// would pass for one that is gone.
func (v *verbosity) set(session string, level string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	live := map[string]bool{}
	for s := range v.living() {
		live[s.ID()] = true
	}
	v.of[session] = level
	for id := range v.of {
		if !live[id] {
			delete(v.of, id)
		}
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
	for _, level := range v.of {
		most = moreVerbose(most, level)
	}
	if most == v.told && within(peers, v.who) {
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
	v.told, v.who = level, who
}

func moreVerbose(a, b string) string {
	if a == "" || slices.Index(levels, b) < slices.Index(levels, a) {
		return b
	}
	return a
}

// wantsLevel notes which messages a client wants, and tells the peers. That goes
// on when the client does not wait for it: nobody else would.
func (b *Bridge) wantsLevel(ctx context.Context, note func()) {
	wait, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	note()
	b.tellLevel(wait, context.WithoutCancel(ctx))
}

// tellLevel tells the peers the level that is wanted, if it is new to any. wait
// bounds how long it waits for its turn.
func (b *Bridge) tellLevel(wait, ctx context.Context) {
	news := func() bool { return b.verbosity.news(b.catalog.Catalog().Loggers()) != "" }
	if err := b.verbosity.telling.tell(wait, news, func() error { return b.sayLevel(ctx) }); err != nil {
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
	_, err := b.catalog.Request(ctx, peer.Request{Method: methodSetLevel, Params: rawjson.Pair("level", level)})
	if err == nil {
		b.verbosity.knows(level, peers)
	}
	return err
}

// setLevel is called when the SDK has noted the level of a session.
func (b *Bridge) setLevel(ctx context.Context, session *mcp.ServerSession, level string) {
	if session.ID() == "" || !slices.Contains(levels, level) {
		return
	}
	b.wantsLevel(ctx, func() { b.verbosity.set(session.ID(), level) })
}

// asksLevel notes the level that a request of the stateless era has.
func (b *Bridge) asksLevel(ctx context.Context, r mcp.Request) {
	if !isNewest(r) {
		return
	}
	level, _ := r.GetParams().GetMeta()[metaLogLevel].(string)
	if slices.Contains(levels, level) {
		b.wantsLevel(ctx, func() { b.verbosity.ask(level) })
	}
}
