package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/cluster/kubeapi"
	"github.com/orla-project/orla/internal/observe/brief"
)

// capsulePath begins the paths of the capsules that a replica holds.
const capsulePath = "/capsules/"

// CapsuleURL returns where a replica serves a capsule that it holds.
func CapsuleURL(replica, capsule string) string { return "https://" + replica + capsulePath + capsule }

// Transport makes requests of replicas: the host of a URL is the name of one.
func (r *Replicas) Transport() http.RoundTripper { return r.transport }

// held is what this replica holds.
type held struct {
	names, digests *search

	mu      *sync.Mutex // guards serving
	serving map[string]http.Handler

	refusals *brief.Limiter // has a lock of its own
}

// search is the search for unknown replicas, by their names or by the digests of their certificates.
type search struct {
	pause time.Duration // after one that found nothing

	mu   sync.Mutex // held during one, and guards next
	next time.Time  // when the API server is asked again after it did not answer, or had nothing

	noted sync.Mutex          // guards vain; nothing waits while it is held. It may be locked inside mu
	vain  map[string]struct{} // what was not found
}

// gone reports whether something was looked for in vain.
func (s *search) gone(what string) bool {
	s.noted.Lock()
	defer s.noted.Unlock()
	_, gone := s.vain[what]
	return gone
}

// note notes that something was looked for in vain.
func (s *search) note(what string) {
	s.noted.Lock()
	defer s.noted.Unlock()
	if s.vain == nil || len(s.vain) >= maxVain {
		s.vain = map[string]struct{}{}
	}
	s.vain[what] = struct{}{}
}

// digestPause is the time between two searches for certificates: a stranger makes as many as it likes. A replica that has
// come meanwhile is told by the watch.
const digestPause = time.Second

// maxVain bounds search.vain.
const maxVain = 10_000

func newHeld() held {
	return held{names: &search{}, digests: &search{pause: digestPause}, mu: &sync.Mutex{}, serving: map[string]http.Handler{}, refusals: &brief.Limiter{}}
}

// Offer has the second port serve a capsule that this replica holds; nil for no more. Requests that are being
// answered go on.
func (r *Replicas) Offer(capsule string, by http.Handler) {
	r.held.mu.Lock()
	defer r.held.mu.Unlock() // the other lock is taken in it, and never the other way
	if by == nil {
		delete(r.held.serving, capsule)
		return
	}
	r.held.serving[capsule] = by
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tellLocked()
}

// offerTime is how long a request waits for a capsule that this replica holds and does not serve yet.
const offerTime = 5 * time.Second

// serveHeld serves a capsule. Where it is not held, nothing of the request is done: 421.
func (r *Replicas) serveHeld(w http.ResponseWriter, q *http.Request) {
	capsule := q.PathValue("capsule")
	late := time.After(offerTime)
	for {
		r.mu.Lock()
		l, changed := r.leases[r.leaseOfCapsule(capsule)], r.changed
		soon := l != nil && l.Spec.Holder == r.self && l.leaves().IsZero() && r.alive.Err() == nil && !r.leaving
		r.mu.Unlock()
		r.held.mu.Lock()
		by := r.held.serving[capsule]
		r.held.mu.Unlock()
		switch {
		case by != nil:
			by.ServeHTTP(w, q)
			return
		case !soon:
			http.Error(w, "this replica does not hold the capsule", http.StatusMisdirectedRequest)
			return
		}
		select {
		case <-changed:
		case <-late:
			http.Error(w, "this replica does not serve the capsule yet", http.StatusMisdirectedRequest)
			return
		case <-q.Context().Done():
			return
		}
	}
}

// leaseOfCapsule names the Lease of a capsule.
func (r *Replicas) leaseOfCapsule(capsule string) string {
	sum := sha256.Sum256([]byte(r.opts.Group + "\x00" + capsule))
	return "orla-capsule-" + hex.EncodeToString(sum[:10])
}

// Holder waits until a replica holds a capsule, can be reached and means to go on, and returns its name.
func (r *Replicas) Holder(ctx context.Context, capsule string) (string, error) {
	name := r.leaseOfCapsule(capsule)
	for {
		r.mu.Lock()
		l, changed := r.leases[name], r.changed
		var holder string
		if l != nil && l.leaves().IsZero() && r.holdsLocked(l) {
			if of := r.leases[leaseOf(l.Spec.Holder)]; of != nil && r.reachesLocked(of) {
				holder = l.Spec.Holder
			}
		}
		r.mu.Unlock()
		if holder != "" {
			return holder, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// Serves asks a replica that holds a capsule whether its process can be called. If not, why says it in words, as far as the
// replica does. The error is ErrFails if the process has failed, or an operator has stopped it.
func (r *Replicas) Serves(ctx context.Context, holder, capsule string) (why string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lasts/2)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, CapsuleURL(holder, capsule), nil)
	if err != nil {
		return "", err
	}
	resp, err := r.transport.RoundTrip(req)
	if err != nil {
		return "the replica that holds it cannot be reached", err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if resp.StatusCode == http.StatusNoContent {
		return "", nil
	}
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxSaid)) // what was read must do
	why = strings.ToValidUTF8(strings.TrimSpace(string(said)), "")
	if resp.StatusCode == http.StatusServiceUnavailable {
		return why, ErrFails
	}
	return why, errNotYet
}

// maxSaid bounds why a replica does not serve a capsule, in bytes.
const maxSaid = 4 << 10

// ErrFails is that the process of a capsule cannot be called, and errNotYet that it may be soon.
var (
	ErrFails  = errors.New("the process of the capsule fails")
	errNotYet = errors.New("the process of the capsule cannot be called yet")
)

// Moved waits until a replica does not hold a capsule any more, and reports that; false when ctx ends before. Who has been
// frozen does not say so: what waits for its answer would wait for ever.
func (r *Replicas) Moved(ctx context.Context, capsule, holder string) bool {
	name := r.leaseOfCapsule(capsule)
	return r.await(ctx, func() bool {
		l := r.leases[name]
		return l == nil || l.Spec.Holder != holder || !r.holdsLocked(l)
	})
}

// await waits until something is so; false when ctx ends before. is is called with r.mu locked.
func (r *Replicas) await(ctx context.Context, is func() bool) bool {
	for {
		r.mu.Lock()
		so, changed := is(), r.changed
		r.mu.Unlock()
		if so {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// holdsLocked reports whether the holder of a capsule's Lease lives.
func (r *Replicas) holdsLocked(l *seen) bool {
	if l.Spec.Holder == r.self {
		return r.alive.Err() == nil
	}
	of := r.leases[leaseOf(l.Spec.Holder)]
	return l.Spec.Holder != "" && of != nil && r.livesLocked(of)
}

// maxRefusals is how many times in a minute the log says why the API server refuses a Lease of a capsule.
const maxRefusals = 10

// Hold calls run whenever this replica holds a capsule, until ctx ends. The context of run ends when this replica stops,
// or is to hold it no longer; run then returns when nothing of the capsule is left. A later run
// has a higher generation. No other replica holds it before run has returned, or this replica is gone.
func (r *Replicas) Hold(ctx context.Context, capsule string, run func(ctx context.Context, generation int64)) {
	name := r.leaseOfCapsule(capsule)
	var patience time.Time // until then, those may take it that come before this one
	said := ""             // why the API server refuses that
	for {
		r.mu.Lock()
		l, changed, alive, leaving := r.leases[name], r.changed, r.alive, r.leaving
		free := l == nil || !r.holdsLocked(l) || l.Spec.Holder == r.self
		rank := r.rankLocked(capsule)
		r.mu.Unlock()
		var again <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return
		case alive.Err() != nil || leaving || !free:
			patience = time.Time{}
		case patience.IsZero():
			patience = time.Now().Add(time.Duration(rank) * look / 2)
			continue
		case time.Now().Before(patience):
			again = time.After(time.Until(patience))
		default:
			taken, err := r.take(ctx, name, capsule, l)
			if err == nil {
				said = ""
				r.keep(ctx, alive, taken, run)
			} else if ctx.Err() == nil {
				level := slog.LevelDebug // another replica was faster, or the API server is away
				if refused, is := errors.AsType[*kubeapi.StatusError](err); is && refused.Code != http.StatusConflict && said != err.Error() {
					if shown, _ := r.held.refusals.Allow(maxRefusals); shown { // of all capsules: an API server may refuse in ever new words
						said, level = err.Error(), slog.LevelWarn
					}
				}
				r.opts.Log.Log(ctx, level, "a capsule's lease is not taken", "tool", capsule, "lease", name, "err", err)
			}
			patience = time.Now().Add(look / 2)
			continue
		}
		select {
		case <-changed:
		case <-again:
		case <-ctx.Done():
		}
	}
}

// rankLocked returns how many replicas come before this one for a capsule, so that capsules are spread over them.
func (r *Replicas) rankLocked(capsule string) (rank int) {
	own := weight(r.self, capsule)
	for _, l := range r.leases {
		if m := l.member(); m.Name != r.self && r.answersLocked(l) && weight(m.Name, capsule) > own {
			rank++
		}
	}
	return rank
}

// take makes this replica the holder of a capsule. was is its Lease, as it is known; nil if there is none.
func (r *Replicas) take(ctx context.Context, name, capsule string, was *seen) (*record, error) {
	l := &record{}
	if was != nil {
		l.Metadata.Version, l.Spec.Transitions = was.Metadata.Version, was.Spec.Transitions
	}
	l.Metadata.Name = name
	l.Metadata.Labels, l.Metadata.Annotations = map[string]string{labelGroup: r.opts.Group}, map[string]string{noteCapsule: capsule}
	if was != nil && was.note(noteOrder) != "" {
		l.Metadata.Annotations[noteOrder] = was.note(noteOrder)
	}
	l.Spec.Holder = r.self
	l.Spec.Transitions++
	return r.write(ctx, l)
}

// write creates or replaces a Lease, unless it has changed meanwhile.
func (r *Replicas) write(ctx context.Context, l *record) (*record, error) {
	ctx, cancel := context.WithTimeout(ctx, lasts/3)
	defer cancel()
	ask := kubeapi.Request{Method: http.MethodPut, Of: leases, Namespace: r.opts.Namespace, Name: l.Metadata.Name, Body: kubeapi.Object{
		"apiVersion": leases.APIVersion(), "kind": "Lease", "metadata": l.Metadata, "spec": l.Spec,
	}}
	if l.Metadata.Version == "" {
		ask.Method, ask.Name = http.MethodPost, ""
	}
	written := &record{}
	if err := r.opts.Client.Do(ctx, ask, written); err != nil {
		return nil, err
	}
	r.note(false, *written)
	return written, nil
}

// keep calls run while the Lease of a capsule is this replica's, and gives it back.
func (r *Replicas) keep(ctx, alive context.Context, l *record, run func(context.Context, int64)) {
	capsule, generation := l.note(noteCapsule), l.Spec.Transitions
	r.opts.Log.Info("this replica holds a capsule", "tool", capsule, "generation", generation)
	holding, end := context.WithCancelCause(ctx)
	defer end(nil)
	var watching sync.WaitGroup
	defer watching.Wait()
	watching.Go(func() { r.watchHeld(holding, alive, l.Metadata.Name, end) })
	run(holding, generation)
	lost := errors.Is(context.Cause(holding), errLost)
	end(nil)
	watching.Wait()
	r.opts.Log.Info("this replica does not hold a capsule any more", "tool", capsule, "generation", generation, "lost", lost)
	if lost {
		return
	}
	free := kubeapi.Object{
		"metadata": kubeapi.Object{"annotations": kubeapi.Object{noteLeaves: nil}},
		"spec":     kubeapi.Object{"holderIdentity": nil},
	}
	if err := r.patch(context.WithoutCancel(ctx), l.Metadata.Name, free); err != nil {
		r.opts.Log.Warn("a capsule's lease is not given back; others take it when this replica is gone", "tool", capsule, "err", err)
	}
}

// errLost ends the holding of a capsule that others may take already, and errLeaves that of a replica that stops.
var (
	errLost   = errors.New("the lease was not renewed")
	errLeaves = errors.New("this replica stops")
)

// watchHeld ends the holding of a capsule when it is lost, or this replica stops. Before the latter, the others know.
func (r *Replicas) watchHeld(ctx, alive context.Context, name string, end context.CancelCauseFunc) {
	for {
		r.mu.Lock()
		l, changed, leaving := r.leases[name], r.changed, r.leaving
		r.mu.Unlock()
		switch {
		case alive.Err() != nil, l == nil, l.Spec.Holder != r.self:
			end(errLost)
			return
		case leaving:
			_ = r.annotate(context.WithoutCancel(ctx), name, noteLeaves, time.Now()) // else others ask this replica once more, and are told that it does not hold it
			end(errLeaves)
			return
		}
		select {
		case <-changed:
		case <-alive.Done():
		case <-ctx.Done():
			return
		}
	}
}

// Lost reports whether the context of a run ended because others may hold the capsule already: there is no time.
func Lost(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errLost) }

// AwaitReleased waits until this replica holds no capsule, or ctx ends.
func (r *Replicas) AwaitReleased(ctx context.Context) {
	for {
		r.mu.Lock()
		changed := r.changed
		holds := false
		for _, l := range r.leases {
			holds = holds || l.note(noteCapsule) != "" && l.Spec.Holder == r.self
		}
		r.mu.Unlock()
		if !holds {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
