package replicas

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// The label and the annotations of the Leases of a group.
const (
	labelGroup  = "orla.dev/replicas"
	noteAddress = "orla.dev/address" // of a replica
	noteDigest  = "orla.dev/certificate"
	noteLeaves  = "orla.dev/leaves"  // since when a replica stops, or gives a capsule up
	noteServes  = "orla.dev/serves"  // since when a replica is ready
	noteUsed    = "orla.dev/used"    // when others still went on with sessions of a replica that is gone
	noteCapsule = "orla.dev/capsule" // the name of the capsule that is held
	noteOrder   = "orla.dev/order"   // what an operator wants of it, and a word that no other order has
)

var leases = kubeapi.Resource{Group: "coordination.k8s.io", Version: "v1", Name: "leases"}

// prefix begins the names of the Leases of replicas.
const prefix = "orla-replica-"

func leaseOf(replica string) string { return prefix + replica }

// record is what is read of a Lease.
type record struct {
	Metadata struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid,omitempty"`
		Version     string            `json:"resourceVersion,omitempty"`
		Created     time.Time         `json:"creationTimestamp,omitzero"`
		Labels      map[string]string `json:"labels,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Holder      string    `json:"holderIdentity,omitempty"`
		Seconds     int64     `json:"leaseDurationSeconds,omitempty"`
		Renewed     time.Time `json:"renewTime,omitzero"`
		Transitions int64     `json:"leaseTransitions"`
	} `json:"spec"`
}

func (l *record) note(key string) string { return l.Metadata.Annotations[key] }

func (l *record) isReplica() bool { return l.note(noteDigest) != "" }

func (l *record) member() Member {
	name, _ := strings.CutPrefix(l.Metadata.Name, prefix)
	return Member{Name: name, Address: l.note(noteAddress), Digest: l.note(noteDigest), Created: l.Metadata.Created}
}

// Lease returns the name and the uid of the Lease of a replica, which is kept for as long as anybody goes on with its sessions; ""
// without one.
func (r *Replicas) Lease(replica string) (name, uid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.leases[leaseOf(replica)]; l != nil {
		return l.Metadata.Name, l.Metadata.UID
	}
	return "", ""
}

// newer reports whether a Lease is a later version than another one: those of one API server are numbers.
func (l *record) newer(than *record) bool {
	return number(l.Metadata.Version) > number(than.Metadata.Version)
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // 0 is older than all
	return n
}

// leaves returns since when its holder is giving it up; zero if it is not.
func (l *record) leaves() time.Time { return l.when(noteLeaves) }

// serves returns since when its replica is ready; zero if it is not yet.
func (l *record) serves() time.Time { return l.when(noteServes) }

func (l *record) when(key string) time.Time {
	note := l.note(key)
	if note == "" { // as at each Lease of a capsule; the error of Parse would cost more than all else
		return time.Time{}
	}
	at, _ := time.Parse(time.RFC3339, note) // zero for what is not a time
	return at
}

// wentAt returns when a replica that is gone was there last, by its own clock; zero if nobody knows.
func (l *record) wentAt() time.Time {
	if at := l.leaves(); !at.IsZero() {
		return at
	}
	return l.Spec.Renewed
}

// follow keeps what is known of the Leases up to date.
func (r *Replicas) follow(ctx context.Context) {
	said := false
	for ctx.Err() == nil {
		version, err := r.list(ctx)
		if err != nil {
			if !said && ctx.Err() == nil {
				said = true
				r.opts.Log.Warn("the list of replicas cannot be read; keeping the known ones", "err", err)
			}
			pace.Sleep(ctx, look)
			continue
		}
		if said {
			said = false
			r.opts.Log.Info("the list of replicas can be read again")
		}
		for version != "" && ctx.Err() == nil {
			version = r.watch(ctx, version)
		}
	}
}

func (r *Replicas) query() url.Values {
	return url.Values{"labelSelector": {labelGroup + "=" + r.opts.Group}}
}

// list reads all Leases, and returns from which version on they are to be watched.
func (r *Replicas) list(ctx context.Context) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, lasts/2)
	defer cancel()
	var found struct {
		Metadata struct {
			Version string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []record `json:"items"`
	}
	asked := time.Now()
	err = r.opts.Client.Do(ctx, kubeapi.Request{Method: http.MethodGet, Of: leases, Namespace: r.opts.Namespace, Query: r.query()}, &found)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.leases
	r.leases = make(map[string]*seen, len(found.Items))
	for name, was := range before {
		if number(was.Metadata.Version) > number(found.Metadata.Version) { // it was heard of since
			r.leases[name] = was
		}
	}
	for _, item := range found.Items {
		name := item.Metadata.Name
		if was := before[name]; was != nil && !item.newer(&was.record) {
			r.leases[name] = was
			continue
		}
		r.leases[name] = before[name].next(item, asked)
	}
	r.heardLocked(asked)
	return found.Metadata.Version, nil
}

// silence is how long the API server may say nothing until that time does not count: a replica renews its Lease more often.
const silence = lasts / 2

// heardLocked notes that the API server has said something. While it was away nobody could renew a Lease, so that the
// others have what was left of theirs.
func (r *Replicas) heardLocked(at time.Time) {
	if away := at.Sub(r.contact); away > silence && !r.contact.IsZero() {
		for _, l := range r.leases {
			if l.at = l.at.Add(away); l.at.After(at) {
				l.at = at
			}
		}
	}
	r.contact = at
	r.countLocked()
	r.tellLocked()
}

// watchSeconds is after how long the API server ends a watch.
const watchSeconds = "300"

// watch follows the changes of Leases. It returns from which version on to go on; "" for a new list.
func (r *Replicas) watch(ctx context.Context, version string) string {
	query := r.query()
	query.Set("resourceVersion", version)
	query.Set("allowWatchBookmarks", "true")
	query.Set("timeoutSeconds", watchSeconds)
	began, gone := time.Now(), false
	err := r.opts.Client.Watch(ctx, kubeapi.Request{Method: http.MethodGet, Of: leases, Namespace: r.opts.Namespace, Query: query}, func(e kubeapi.Event) bool {
		var l record
		if e.Type == "ERROR" || json.Unmarshal(e.Object, &l) != nil {
			gone = true
			return false
		}
		version = l.Metadata.Version
		if e.Type != "BOOKMARK" {
			r.note(e.Type == "DELETED", l)
		}
		return true
	})
	if err != nil || gone || time.Since(began) < look/2 { // a proxy may end each watch at once
		pace.Sleep(ctx, look/2)
	}
	if err != nil || gone {
		return ""
	}
	return version
}

// note notes a Lease, as it is now.
func (r *Replicas) note(deleted bool, l record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	was := r.leases[l.Metadata.Name]
	switch {
	case was != nil && !l.newer(&was.record): // the watch is behind
	case deleted:
		delete(r.leases, l.Metadata.Name)
	default:
		r.leases[l.Metadata.Name] = was.next(l, now)
	}
	r.heardLocked(now)
}

func (r *Replicas) patch(ctx context.Context, name string, with kubeapi.Object) error {
	ctx, cancel := context.WithTimeout(ctx, lasts/3)
	defer cancel()
	return r.opts.Client.Do(ctx, kubeapi.Request{Method: http.MethodPatch, Of: leases, Namespace: r.opts.Namespace, Name: name, Body: with}, nil)
}

// annotate notes a time at a Lease.
func (r *Replicas) annotate(ctx context.Context, name, key string, at time.Time) error {
	return r.patch(ctx, name, kubeapi.Object{"metadata": kubeapi.Object{"annotations": kubeapi.Object{key: at.UTC().Format(time.RFC3339Nano)}}})
}

// remove removes a Lease whose replica has been gone for long. Another replica may be faster.
func (r *Replicas) remove(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, lasts/3)
	defer cancel()
	_ = r.opts.Client.Do(ctx, kubeapi.Request{Method: http.MethodDelete, Of: leases, Namespace: r.opts.Namespace, Name: name}, nil) // it is tried again
}
