// Package objects knows what one namespace of a Kubernetes API server has of one resource: it lists the
// objects, watches them, and says when something has changed.
//
// While the API server cannot be reached it keeps what it knows.
package objects

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/cluster/kubeapi"
)

// Options say which objects.
type Options struct {
	Client    *kubeapi.Client
	Of        kubeapi.Resource
	Namespace string
	Labels    string          // a selector; "" for all
	Changed   chan<- struct{} // gets a value after a change, unless it is full; several Objects may share it
	Note      bool            // what changes, for Changes
	// Keep returns what is kept of an object in place of its Document, for as long as only its status changes. It must not use the
	// Objects. If nil, the Document is kept.
	Keep func(*Object) any
	Log  *slog.Logger
}

// Object is an object as Orla uses it. It is never changed, but replaced.
type Object struct {
	Name       string
	UID        string
	Version    string // resourceVersion
	Generation int64
	// Document is what a file would have: apiVersion, kind, name, namespace and spec, as JSON. If it is nil,
	// Fault says why it is not kept, or Kept is what Options.Keep has returned.
	Document []byte
	Kept     any
	Fault    error
	Status   []byte // JSON; nil if it has none, or a very large one

	sum  [sha256.Size]byte // of the document
	size int               // of the document
}

// Objects are the objects of one resource in one namespace. Its methods may be called from any goroutine.
type Objects struct {
	Options
	ready chan struct{} // closed when All is known

	mu    sync.Mutex // guards the fields that follow
	known map[string]*Object
	bytes int             // of all documents
	err   error           // why known may be out of date; nil if it is not
	first bool            // it was listed
	fresh map[string]bool // the names of objects that have changed since the last Changes
}

// New returns Objects that know nothing until Serve has listed them.
func New(o Options) *Objects {
	return &Objects{Options: o, ready: make(chan struct{}), known: map[string]*Object{}, fresh: map[string]bool{}}
}

// Ready returns a channel that is closed when the objects have been listed once.
func (o *Objects) Ready() <-chan struct{} { return o.ready }

// All returns the objects by name. If they were never listed, the error says why.
func (o *Objects) All() ([]*Object, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.first {
		return nil, cmp.Or(o.err, errNotYet)
	}
	return slices.SortedFunc(maps.Values(o.known), func(a, b *Object) int { return strings.Compare(a.Name, b.Name) }), nil
}

// Latest returns the object of a name as it is now; nil if there is none.
func (o *Objects) Latest(name string) *Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.known[name]
}

// Changes returns the objects that are new or have another version than at the last call, and the names of those that are
// gone. Its cost is that of the changes. If the objects were never listed, the error says why.
func (o *Objects) Changes() (changed []*Object, gone []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.first {
		return nil, nil, cmp.Or(o.err, errNotYet)
	}
	for _, name := range slices.Sorted(maps.Keys(o.fresh)) {
		if one, there := o.known[name]; there {
			changed = append(changed, one)
		} else {
			gone = append(gone, name)
		}
	}
	clear(o.fresh)
	return changed, gone, nil
}

// Err returns why the objects may be out of date, or are not known yet; nil if neither is so.
func (o *Objects) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.first {
		return cmp.Or(o.err, errNotYet)
	}
	return nil
}

// freshLocked notes that an object has changed.
func (o *Objects) freshLocked(name string) {
	if o.Note {
		o.fresh[name] = true
	}
}

var errNotYet = fmt.Errorf("they have not been listed yet")

const (
	firstPause, lastPause = 500 * time.Millisecond, 30 * time.Second
	// short is how long a watch has to last so that the next one begins at once.
	short = 10 * time.Second
)

// Serve keeps the objects up to date until ctx ends. It logs once that it cannot, and once that it can again.
func (o *Objects) Serve(ctx context.Context) {
	pauses := backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstPause), backoff.WithMaxInterval(lastPause), backoff.WithMaxElapsedTime(0))
	version := "" // "" to list them
	for {
		began := time.Now()
		next, err := o.step(ctx, version)
		if ctx.Err() != nil {
			return
		}
		version = next
		o.report(err)
		if err == nil && time.Since(began) >= short {
			pauses.Reset()
			continue
		}
		if !pace.Sleep(ctx, pauses.NextBackOff()) {
			return
		}
	}
}

// step lists the objects if version is "", and watches them from there. It returns the version to go on from.
func (o *Objects) step(ctx context.Context, version string) (next string, err error) {
	next = version
	defer recovered.To(o.Log, "follow the "+o.Of.Name+" of the cluster", func(p any) {
		next, err = "", fmt.Errorf("a bug in Orla: %v", p)
	})
	if next == "" {
		if next, err = o.list(ctx); err != nil {
			return "", err
		}
		o.report(nil)
	}
	err = o.watch(ctx, &next)
	return next, err
}

// report keeps why the objects may be out of date, and logs when that begins and when it ends.
func (o *Objects) report(err error) {
	o.mu.Lock()
	before := o.err
	o.err = err
	unknown := !o.first
	o.mu.Unlock()
	if unknown && err != nil && (before == nil || before.Error() != err.Error()) {
		o.changed() // why All knows nothing
	}
	switch {
	case err != nil && before == nil:
		o.Log.Warn("the cluster cannot be asked for its resources; keeping those that are known", "resource", o.Of.Name, "err", err)
	case err == nil && before != nil:
		o.Log.Info("the cluster can be asked for its resources again", "resource", o.Of.Name)
	}
}

// changed says that something has changed.
func (o *Objects) changed() {
	select {
	case o.Changed <- struct{}{}:
	default: // there is a value in it already
	}
}

// replace makes what was listed all that is known.
func (o *Objects) replace(listed map[string]*Object, bytes int) {
	o.mu.Lock()
	same := o.first && maps.EqualFunc(o.known, listed, (*Object).same)
	for name, one := range listed {
		if before, there := o.known[name]; !there || before.Version != one.Version || !before.same(one) {
			o.freshLocked(name)
		}
	}
	for name := range o.known {
		if _, there := listed[name]; !there {
			o.freshLocked(name)
		}
	}
	o.known, o.bytes = listed, bytes
	if !o.first {
		o.first = true
		close(o.ready)
	}
	o.mu.Unlock()
	if !same {
		o.changed()
	}
}

// put adds an object, or replaces the one of its name.
func (o *Objects) put(one *Object) {
	o.mu.Lock()
	before, there := o.known[one.Name]
	count, rest := len(o.known), o.bytes
	if there {
		count, rest = count-1, rest-before.size
	}
	one.bound(count, rest)
	o.keep(one, before)
	o.known[one.Name] = one
	o.bytes = rest + one.size
	o.freshLocked(one.Name)
	o.mu.Unlock()
	if !there || !before.same(one) {
		o.changed()
	}
}

func (o *Objects) remove(name string) {
	o.mu.Lock()
	before, there := o.known[name]
	if there {
		delete(o.known, name)
		o.bytes -= before.size
		o.freshLocked(name)
	}
	o.mu.Unlock()
	if there {
		o.changed()
	}
}
