package supervisor

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/thejerf/suture/v4"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// living is what stands behind one manifest that was applied.
type living struct {
	tool     manifest.Tool
	provider Provider // what Build returned
	peer     Peer     // the same, if it is one; else nil
	operator Operator // what Build returned, if it is one; else nil
	tools    []*mcp.Tool
	offers   *peer.Offers // of the peer, as they were when the last catalog was made
	token    *suture.ServiceToken

	// inputs are the input schemas of tools. Guarded by Supervisor.applying.
	inputs map[*mcp.Tool]compiled

	// shown is what a peer offers, as far as its schemas have been compiled.
	shown atomic.Pointer[shown]

	looks atomic.Uint64 // how many times it was prepared
	late  atomic.Uint64 // the look that takes too long, from 1 on

	sparing brief.Limiter // of what is logged about what it offers
}

// shown is what a peer offered at one moment, with its schemas.
type shown struct {
	offers  *peer.Offers
	inputs  map[*mcp.Tool]compiled
	schemas map[digest]compiled // the same, for the tools of the next offers
}

// digest is the SHA-256 of a schema.
type digest [sha256.Size]byte

// compiled is a tool's input schema, or why it has none that can be used.
type compiled struct {
	schema *schema.Schema
	err    error
}

// What the input schemas of one peer's tools may have in all: JSON objects, and bytes when
// they are compiled, of which patterns need many. To compile so much takes some seconds.
const (
	maxObjects = 40_000
	maxWeight  = 128 << 20
)

// slice is how long the turn of a peer is whose schemas are compiled, while another one waits for its turn. One schema is not cut.
const slice = 10 * time.Millisecond

// prepare compiles what a peer offers now, but for what has been compiled, and makes it
// what is shown. It takes its time, so that it is called without a lock. It ends where goOn,
// which is asked before each schema, returns false.
func (l *living) prepare(goOn func() bool) (offers *peer.Offers) {
	offers = l.peer.Offers()
	before := l.shown.Load()
	next := &shown{offers: offers, inputs: make(map[*mcp.Tool]compiled, len(offers.Tools)), schemas: make(map[digest]compiled, len(offers.Tools))}
	objects, weight := 0, int64(0)
	for _, t := range offers.Tools {
		if !goOn() {
			return offers
		}
		raw, err := rawSchema(t)
		key := digest(sha256.Sum256(raw))
		if c, done := next.schemas[key]; done {
			next.inputs[t] = c
			continue
		}
		c := compiled{err: err}
		objects += bytes.Count(raw, []byte("{"))
		known, was := compiled{}, false
		if before != nil {
			known, was = before.schemas[key]
		}
		switch {
		case c.err != nil:
		case objects > maxObjects:
			c.err = fmt.Errorf("the schemas of one provider may have at most %d objects together", maxObjects)
		case weight > maxWeight:
			c.err = fmt.Errorf("the compiled schemas of one provider may take at most %d bytes together", maxWeight)
		case was && known.schema != nil:
			c = known
		default:
			c.schema, c.err = schema.CompileInput(raw)
		}
		if c.schema != nil {
			weight += c.schema.Weight()
		} else if refused, is := errors.AsType[*schema.CompileError](c.err); is {
			weight += refused.Weight
		}
		c.err = shortened(c.err)
		next.schemas[key], next.inputs[t] = c, c
	}
	l.shown.Store(next)
	return offers
}

// rawSchema returns a tool's input schema as JSON, or why it is not.
func rawSchema(t *mcp.Tool) (json.RawMessage, error) {
	if raw, isRaw := t.InputSchema.(json.RawMessage); isRaw {
		return raw, nil
	}
	return json.Marshal(t.InputSchema)
}

// list makes tools those of a provider that is not a peer, and compiles the schemas of the new ones.
func (l *living) list(tools []*mcp.Tool) {
	if slices.Equal(tools, l.tools) {
		return
	}
	inputs := make(map[*mcp.Tool]compiled, len(tools))
	for _, t := range tools {
		c, was := l.inputs[t]
		if !was {
			raw, err := rawSchema(t)
			if err == nil {
				c.schema, err = schema.CompileInput(raw)
			}
			c.err = shortened(err)
		}
		inputs[t] = c
	}
	l.tools, l.inputs = tools, inputs
}

// gate lets one provider of a name live at a time: a manifest that changed has
// a new one, which must not start before the old one has stopped (SPEC D2).
type gate chan struct{}

func (s *Supervisor) gateOf(name string) gate {
	g := s.gates[name]
	if g == nil {
		g = make(gate, 1)
		s.gates[name] = g
	}
	return g
}

const (
	// maxUpdates is how many resources of a peer whose update waits for the bridge there may be. While
	// there are as many, the peer keeps the others.
	maxUpdates = 256
	// maxUpdated bounds the URI of such a resource, in bytes: nobody can follow one with a longer URI.
	maxUpdated = 4 << 10
)

// keeper is the service of one provider that lives: the provider's own, and the
// goroutine that follows what the provider offers.
type keeper struct {
	of      *living
	service suture.Service
	in      *Supervisor
	gate    gate
}

// String is the provider's name for itself.
func (k *keeper) String() string { return fmt.Sprint(k.service) }

// Serve waits until no other provider of the name lives, and then runs the
// provider until it is done.
func (k *keeper) Serve(ctx context.Context) error {
	select {
	case k.gate <- struct{}{}:
		defer func() { <-k.gate }()
	case <-ctx.Done():
		if k.of.peer != nil {
			// It begins nothing any more, but lets those go who wait for it.
			return k.service.Serve(ctx)
		}
		return ctx.Err()
	}
	if k.of.peer == nil {
		return k.service.Serve(ctx)
	}
	following, end := context.WithCancel(ctx)
	var follower sync.WaitGroup
	var failed atomic.Bool
	follower.Go(func() {
		defer recovered.To(k.in.opts.Log, "follow what a peer offers", func(any) {
			failed.Store(true)
			end() // the provider with it: nobody would hear what it offers
		})
		k.follow(following)
	})
	defer follower.Wait()
	defer end()
	err := k.service.Serve(following)
	if failed.Load() {
		return errFollower
	}
	return err
}

// errFollower is why a provider is served again whose follower panicked.
var errFollower = errors.New("its lists made Orla panic")

// follow publishes a new catalog whenever the peer offers something else, and
// passes on which of its resources were updated: each once, until somebody is told of it. Peers take turns
// to tell, whatever waits (SPEC N2): each has one update in the channel's line.
func (k *keeper) follow(ctx context.Context) {
	offers, rest, due := k.look(ctx)
	var updated []string // in order
	for {
		var tell chan<- string // nil for nothing to tell
		var first string
		if len(updated) > 0 {
			tell, first = k.in.updated, updated[0]
		}
		changed := offers.Changed
		if rest != nil && !awaited(offers) {
			changed = nil
		}
		var heard <-chan string // nil while there are as many as may be
		if len(updated) < maxUpdates {
			heard = k.of.peer.Updated()
		}
		select {
		case <-rest:
			if rest = nil; due.wanted > 0 {
				rest, due = k.publish(due)
			}
		case <-changed:
			offers, rest, due = k.look(ctx)
		case uri := <-heard:
			if p, _ := k.in.Catalog().Holder(uri); p != k.of.peer {
				k.in.opts.Log.Debug("an update of a resource of another is ignored", "tool", k.of.tool.Name, "uri", uri)
				continue
			}
			if len(uri) <= maxUpdated && !slices.Contains(updated, uri) {
				updated = append(updated, uri)
			}
		case tell <- first:
			updated = slices.Delete(updated, 0, 1)
		case <-ctx.Done():
			return
		}
	}
}

// What the offers of a peer may take of Orla's time: where looking at them takes longer than
// little, the next look is so many times as long after it, up to a while.
const (
	little     = 100 * time.Millisecond
	restFactor = 9
	maxRest    = 30 * time.Second
	// patience is how long all lists wait until what a peer offers is prepared, once it has said it.
	patience = 5 * time.Second
)

// prepared is what is to be published.
type prepared struct {
	wanted uint64        // one of asked; 0 if there is nothing
	took   time.Duration // until now, without what it waited for others
}

// look publishes what the peer offers now. rest, if it is not nil, says when to look again
// at the earliest. due is not zero if it is too early to publish it: publish is to be called then.
func (k *keeper) look(ctx context.Context) (offers *peer.Offers, rest <-chan time.Time, due prepared) {
	this := k.of.looks.Load() + 1
	late := time.AfterFunc(patience, func() {
		defer recovered.To(k.in.opts.Log, "go on without what a peer offers", nil)
		k.in.goOnWithout(k.of, this)
	})
	defer late.Stop()
	offers, took := k.prepare(ctx)
	k.of.looks.Store(this)
	rest, due = k.publish(prepared{k.in.asked.Add(1), took})
	return offers, rest, due
}

// prepare prepares what the peer offers now, unless ctx ends before. Peers do so in turn, and half of the processors are left to
// calls (SPEC N2). took is without what it waited for its turns.
func (k *keeper) prepare(ctx context.Context) (offers *peer.Offers, took time.Duration) {
	turn, owner, ours := k.in.compiling, turns.Owner{Caller: k.of.tool.Name}, false
	began, since := time.Now(), time.Time{} // since is that of the turn
	var waited time.Duration
	rest := func() {
		if ours {
			turn.Give(owner)
			ours = false
		}
	}
	defer rest()
	offers = k.of.prepare(func() bool {
		if ours && time.Since(since) > slice && turn.Waiting() > 0 {
			rest()
		}
		if !ours {
			asked := time.Now()
			ours = turn.Take(ctx, owner) == nil
			since = time.Now()
			waited += since.Sub(asked)
		}
		return ours && ctx.Err() == nil
	})
	return offers, time.Since(began) - waited
}

// publish publishes what was prepared. What it returns is look's.
func (k *keeper) publish(p prepared) (rest <-chan time.Time, due prepared) {
	took, wait := k.in.refresh(p.wanted, k.of)
	switch took += p.took; {
	case wait > 0:
		return time.After(wait), p
	case took > little:
		return time.After(restAfter(took)), prepared{}
	}
	return nil, prepared{}
}

// restAfter returns how long the next look is after one that took so long.
func restAfter(took time.Duration) time.Duration { return min(restFactor*took, maxRest) }

// refresh publishes what the providers offer now, and returns how long that took. wanted is one of asked. A catalog is made of
// what all offer, under the lock that reloads, the control socket and the stop need. Where that takes longer than little, it is
// too early for the next one until restAfter, whichever of the peers changes: then refresh returns how long that is. It is not too
// early for the first lists of a peer, which of is.
func (s *Supervisor) refresh(wanted uint64, of *living) (took, wait time.Duration) {
	s.applying.Lock()
	defer s.applying.Unlock()
	if s.published >= wanted {
		return 0, 0 // a catalog was made meanwhile
	}
	if wait = time.Until(s.rests); wait > 0 && !of.isHeard() {
		return 0, wait
	}
	return s.publishNow(), 0
}

// publishNow publishes a catalog, after which the next ones rest if it takes long, and returns how long that took. The caller holds
// applying.
func (s *Supervisor) publishNow() (took time.Duration) {
	began := time.Now()
	s.publish()
	if took = time.Since(began); took > little {
		s.rests = began.Add(took + restAfter(took))
	}
	return took
}

// goOnWithout publishes a catalog for whose lists nobody waits for those of a peer, if a look at them is still not done: what a
// stranger offers may be dear to prepare in a way that no bound knows, or its turn does not come (SPEC D7a, N2). Of peers that are
// late together, one catalog goes on without all.
func (s *Supervisor) goOnWithout(l *living, look uint64) {
	l.late.Store(look)
	wanted := s.asked.Add(1) // after that: the catalog that is for it knows who is late
	s.applying.Lock()
	defer s.applying.Unlock()
	if !l.isLate() || l.offers == nil || !awaited(l.offers) {
		return
	}
	s.opts.Log.Warn("what it offers is not prepared in time; others are not kept waiting for it", "tool", l.tool.Name)
	if s.published < wanted {
		s.publishNow()
	}
}

// isLate reports whether the look at what a peer offers that is under way takes too long.
func (l *living) isLate() bool { return l.late.Load() > l.looks.Load() }

// awaited reports whether all lists wait for what a peer offers next (SPEC D7a). That comes at once, whatever rests: it is one thing, or few.
func awaited(offers *peer.Offers) bool { return !offers.Known || offers.Silent }

// isHeard reports whether a peer has an answer now to those who wait for it with the last catalog; see Catalog.Known. The caller
// holds applying.
func (l *living) isHeard() bool {
	if l.offers == nil || !awaited(l.offers) {
		return false
	}
	now := l.shown.Load().offers
	return now.Known && now != l.offers
}
