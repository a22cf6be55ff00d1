// Package replicas lets several Orlas serve the same clients (SPEC P3, P4; docs/decisions/0052). Each replica has a
// Lease, which it renews, with its address and the digest of its certificate. All replicas watch the Leases of all.
// They reach each other over TLS on a second port, and know each other by these digests.
//
// Its invariants: a replica counts as gone only after others have heard from the API server for longer than its Lease
// lasts and its Lease has not changed; it knows earlier that its own Lease was not renewed, and holds nothing from
// then on; and nobody answers a request on the second port whose certificate is in no Lease.
package replicas

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/cluster/lease"
)

const (
	// lasts is how long a Lease of a replica lasts without a renewal.
	lasts = 10 * time.Second
	// longest is how long at most a Lease lasts that says another time: without that, one could be there for ever, with nobody behind it.
	longest = time.Minute
	// look is how often a replica looks which others are gone.
	look = time.Second
	// remembered is how long the Lease of a replica that is gone is kept: from it others know who may go on with
	// its sessions.
	remembered = 24 * time.Hour
)

// Options configures a Replicas.
type Options struct {
	Client    *kubeapi.Client
	Namespace string
	Group     string // the replicas of one group are each other's
	Pod       string // begins the name of this replica
	Address   string // where the others reach the second port: HOST:PORT
	Log       *slog.Logger
}

// Replicas knows the replicas of a group, of which this process is one. Its methods may be called from any goroutine.
type Replicas struct {
	opts Options
	identity
	outgoing
	held held

	mu      sync.Mutex // guards the fields that follow
	leases  map[string]*seen
	contact time.Time // when the API server was heard last
	alive   context.Context
	leaving bool
	asks    asks
	live    []Member
	changed chan struct{}
}

// outgoing is how this replica asks others.
type outgoing struct {
	transport transport
	calls     int // POSTs that others are answering, without streams; guarded by Replicas.mu
}

// asks are what this replica is asked about itself.
type asks struct {
	ready func() bool               // whether it can go on with what others had; nil before it serves
	since time.Time                 // when it could first
	uses  func(replica string) bool // whether it goes on with something of a replica; nil for nothing
}

// identity is what this replica is to others.
type identity struct {
	self   string // its name
	cert   tls.Certificate
	digest string // of the certificate
}

// Member is a replica.
type Member struct {
	Name    string
	Address string
	Digest  string    // of its certificate
	Created time.Time // by the clock of the API server
}

// seen is a Lease, and when it changed last by the clock of this process.
type seen struct {
	record
	at      time.Time
	suspect time.Time     // it could not be reached then
	dials   chan struct{} // places for connections that are made; see turnToDial
}

// next is what follows it: another version of the Lease, or none before it if l is nil.
func (l *seen) next(version record, at time.Time) *seen {
	if l == nil {
		return &seen{record: version, at: at}
	}
	return &seen{record: version, at: at, suspect: l.suspect, dials: l.dials}
}

// New returns the Replicas of this process. It sends nothing; Serve does.
func New(opts Options) (*Replicas, error) {
	opts.Group = cmp.Or(opts.Group, "orla")
	pod := strings.Trim(strings.Map(nameable, strings.ToLower(opts.Pod)), "-")
	r := &Replicas{
		opts: opts, identity: identity{self: cmp.Or(strings.TrimRight(pod[:min(len(pod), 40)], "-"), "orla") + "-" + strings.ToLower(rand.Text()[:8])},
		leases: map[string]*seen{}, changed: make(chan struct{}), alive: ended, held: newHeld(),
	}
	var err error
	if r.cert, r.digest, err = newCertificate(r.self); err != nil {
		return nil, err
	}
	r.transport = transport{&http.Transport{
		DialTLSContext: r.dial, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}}
	return r, nil
}

// nameable replaces what the name of a Lease cannot have.
func nameable(c rune) rune {
	if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
		return c
	}
	return '-'
}

// ended is the context of a replica that is not alive.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Self returns the name of this replica. No other process has it, or has had it.
func (r *Replicas) Self() string { return r.self }

// String names the service in logs.
func (r *Replicas) String() string { return "replicas" }

// Serve keeps the Lease of this replica and watches those of the others, until ctx ends. Then the others know at once
// that it has gone.
func (r *Replicas) Serve(ctx context.Context) error {
	defer r.transport.CloseIdleConnections()
	var work sync.WaitGroup
	defer work.Wait()
	for _, do := range []func(context.Context){r.follow, r.watchTime} {
		work.Go(func() {
			defer recovered.To(r.opts.Log, "watch the other replicas", nil)
			do(ctx)
		})
	}
	about := kubeapi.Object{
		"labels":      kubeapi.Object{labelGroup: r.opts.Group},
		"annotations": kubeapi.Object{noteAddress: r.opts.Address, noteDigest: r.digest},
	}
	for ctx.Err() == nil {
		lease.Hold(ctx, lease.Options{
			Client: r.opts.Client, Namespace: r.opts.Namespace, Name: leaseOf(r.self), Holder: r.self, Duration: lasts, About: &about, Log: r.opts.Log,
		}, func(ctx context.Context, _ int64) {
			r.setAlive(ctx)
			<-ctx.Done()
			r.setAlive(ended) //nolint:contextcheck // it says that the Lease is over
		})
		pace.Sleep(ctx, look) // it was given up without a reason
	}
	return ctx.Err()
}

// ServeWhen says that this replica serves, and what tells whether it is ready. Until it is, it does not go on with sessions of
// others. Requests of the sessions that it has begun are passed on to it.
func (r *Replicas) ServeWhen(ready func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks.ready = ready
}

func (r *Replicas) setAlive(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.alive = ctx
	r.tellLocked()
}

// tellLocked wakes whoever waits for a change.
func (r *Replicas) tellLocked() {
	close(r.changed)
	r.changed = make(chan struct{})
}

// watchTime looks which replicas are gone.
func (r *Replicas) watchTime(ctx context.Context) {
	var told []Member // that is in the log: what the API server says changes r.live between two looks
	for pace.Sleep(ctx, look) {
		r.mu.Lock()
		before := r.live
		r.countLocked()
		for _, m := range r.live {
			if !slices.ContainsFunc(told, m.is) {
				r.opts.Log.Info("a replica is there", "replica", m.Name, "address", m.Address)
			}
		}
		for _, m := range told {
			if !slices.ContainsFunc(r.live, m.is) {
				r.opts.Log.Warn("a replica is gone", "replica", m.Name, "address", m.Address)
			}
		}
		told = r.live
		if !slices.Equal(before, r.live) {
			r.tellLocked()
		}
		old, used := r.outdatedLocked()
		own, ready := r.leases[leaseOf(r.self)], r.asks.ready
		starts := own != nil && own.serves().IsZero() && ready != nil
		r.mu.Unlock()
		if starts && ready() {
			r.mu.Lock()
			r.asks.since = cmp.Or(r.asks.since, time.Now()) // also if the Lease is a new one
			since := r.asks.since
			r.mu.Unlock()
			_ = r.annotate(ctx, leaseOf(r.self), noteServes, since) // it is tried again
		}
		if used != "" {
			_ = r.annotate(ctx, used, noteUsed, time.Now()) // it is tried again
		}
		if old != "" {
			r.remove(ctx, old)
		}
	}
}

// outdatedLocked returns the Lease of a replica that nobody needs any more, and that of one that will soon be such, though
// this one goes on with its sessions; "" for none.
func (r *Replicas) outdatedLocked() (old, used string) {
	for name, l := range r.leases {
		if r.livesLocked(l) || !l.isReplica() {
			continue
		}
		age := r.contact.Sub(l.at)
		switch {
		case age > remembered/2 && r.asks.uses != nil && r.asks.uses(l.member().Name):
			used = name
		case age > remembered:
			old = name
		}
	}
	return old, used
}

// KeepUsed says which replicas are remembered longer than a day after they have gone: those with whose sessions this one
// goes on. uses must not call methods of r.
func (r *Replicas) KeepUsed(uses func(replica string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asks.uses = uses
}

func (m Member) is(other Member) bool { return m.Name == other.Name }

// countLocked finds out which replicas live.
func (r *Replicas) countLocked() {
	live := []Member{}
	for _, l := range r.leases {
		if l.isReplica() && r.livesLocked(l) {
			live = append(live, l.member())
		}
	}
	slices.SortFunc(live, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	r.live = live
}

// livesLocked reports whether the replica of a Lease lives, as far as this process can know.
func (r *Replicas) livesLocked(l *seen) bool {
	return l.Spec.Holder != "" && r.contact.Sub(l.at) < min(max(time.Duration(l.Spec.Seconds)*time.Second, look), longest)
}

// Live returns the replicas that live, sorted by their names.
func (r *Replicas) Live() []Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.live)
}

// Lives reports whether a replica lives, can be reached, and has not said that it is leaving: it answers the requests
// of its sessions.
func (r *Replicas) Lives(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if name == r.self {
		return !r.leaving
	}
	l := r.leases[leaseOf(name)]
	return l != nil && r.reachesLocked(l) && l.leaves().IsZero() // also while it starts: it has what it has given names to
}

// Reaches reports whether a replica can still be asked for what only it has, even while it stops.
func (r *Replicas) Reaches(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[leaseOf(name)]
	return l != nil && r.reachesLocked(l)
}

func (r *Replicas) answersLocked(l *seen) bool {
	return r.reachesLocked(l) && l.leaves().IsZero() && !l.serves().IsZero()
}

func (r *Replicas) reachesLocked(l *seen) bool {
	return l.isReplica() && r.livesLocked(l) && !l.suspected()
}

func (l *seen) suspected() bool { return time.Since(l.suspect) <= lasts }

// suspect notes that a replica cannot be reached. For a while others go on with its sessions, and nobody waits for it.
func (r *Replicas) suspect(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.leases[leaseOf(name)]; l != nil {
		l.suspect = time.Now()
	}
}

// Leave tells the others that this replica stops: they go on with its sessions from now on. It goes on answering what
// it has begun.
func (r *Replicas) Leave(ctx context.Context) {
	r.mu.Lock()
	r.leaving = true
	r.tellLocked()
	r.mu.Unlock()
	if err := r.annotate(ctx, leaseOf(r.self), noteLeaves, time.Now()); err != nil {
		r.opts.Log.Warn("could not tell the other replicas that this one stops", "err", err)
	}
}
