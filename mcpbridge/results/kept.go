package results

import (
	"container/list"
	"crypto/rand"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/file/memfile"
)

const (
	// Prefix begins the URIs of kept answers.
	Prefix = "orla://answers/"
	// largeTTL is how long a large answer can be read.
	largeTTL = 10 * time.Minute
	// largeBudget bounds all kept answers together in bytes.
	largeBudget = 128 << 20
)

// Store keeps parts of answers that were too large to send, for largeTTL at most.
type Store struct {
	limit func(caller string, groups []string) int64 // see NewStore
	area  memfile.Area                               // has the bytes
	// Replica begins the ids; see mcpbridge.Shared. It is set before the first call.
	Replica string

	mu     sync.Mutex // guards what follows
	kept   map[string]*list.Element
	order  list.List // of *keptAnswer, oldest first
	of     map[turns.Owner]*keptOf
	caller map[string]*keptOf // by the name
	size   int64
	sweep  *time.Timer // set while something is kept
}

// Keeper is for whom an answer is kept.
type Keeper struct {
	Owner  turns.Owner // whose share it uses, and who may read it
	Caller string      // whose limit it counts for: all clients without a token are one caller
	Groups []string
	Call   string // the id of the call: one part of its answer does not make room for another
}

// keptOf is what is kept for one caller, or for one session without a token.
type keptOf struct {
	order list.List // of *keptAnswer, oldest first
	size  int64
}

// keptAnswer is an answer in a Store.
type keptAnswer struct {
	Kept
	id     string
	by     Keeper // whose call it answers
	until  time.Time
	of     *keptOf       // of its owner
	within *list.Element // in of.order
	caller *keptOf       // of its caller
	listed *list.Element // in caller.order
}

// Large is an answer, or a part of one, that is too large to send.
type Large struct {
	text string // non-empty, or
	blob []byte
	mime string
	rest func() // see Cutter.Rest
}

// Size returns its size in bytes.
func (a Large) Size() int { return len(a.text) + len(a.blob) }

// NewStore returns an empty Store. limit returns how many bytes may be kept for a caller; 0 for as many as
// there is room for.
func NewStore(limit func(caller string, groups []string) int64) *Store {
	return &Store{limit: limit, kept: map[string]*list.Element{}, of: map[turns.Owner]*keptOf{}, caller: map[string]*keptOf{}}
}

// keep stores an answer and returns its URI, which cannot be guessed. Beyond the limit of its caller that one
// loses its oldest answers. Without room, the owner with the most bytes does. It reports false, with the limit, if
// the answer of the call is larger than that.
func (l *Store) keep(a Large, by Keeper) (uri string, most int64, ok bool) {
	limit := l.limit(by.Caller, by.Groups)
	size := int64(a.Size())
	if limit > 0 && size > limit {
		return "", limit, false
	}
	k := &keptAnswer{Kept: l.put(a), id: l.Replica + rand.Text(), by: by, until: time.Now().Add(largeTTL)}
	var dropped []*keptAnswer
	defer func() { free(dropped) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	if has := l.caller[by.Caller]; limit > 0 && has != nil {
		for has.size+size > limit && has.order.Len() > 0 {
			oldest := has.order.Front().Value.(*keptAnswer)
			if oldest.by.Call == by.Call {
				dropped = append(dropped, k)
				return "", limit, false
			}
			dropped = append(dropped, l.dropLocked(oldest))
		}
	}
	k.of, k.caller = added(l.of, by.Owner.Tenant(), size), added(l.caller, by.Caller, size)
	k.within, k.listed = k.of.order.PushBack(k), k.caller.order.PushBack(k)
	l.kept[k.id] = l.order.PushBack(k)
	l.size += size
	for l.size > largeBudget && l.order.Len() > 1 {
		oldest := l.mostLocked().order.Front().Value.(*keptAnswer)
		if oldest == k { // its client has not even the link
			oldest = l.order.Front().Value.(*keptAnswer)
		}
		dropped = append(dropped, l.dropLocked(oldest))
	}
	if l.sweep == nil {
		l.sweep = time.AfterFunc(largeTTL, l.expire)
	}
	return Prefix + k.id, 0, true
}

// free gives the memory of dropped answers back. It takes a while, and so the lock is not held.
func free(dropped []*keptAnswer) {
	for _, k := range dropped {
		k.bytes.Drop()
	}
}

// added counts bytes of somebody, who is there from now on.
func added[K comparable](all map[K]*keptOf, who K, size int64) *keptOf {
	of := all[who]
	if of == nil {
		of = &keptOf{}
		all[who] = of
	}
	of.size += size
	return of
}

// mostLocked returns the caller with the most bytes.
func (l *Store) mostLocked() (most *keptOf) {
	for _, of := range l.of { // each has an answer too large to be inline
		if most == nil || of.size > most.size {
			most = of
		}
	}
	return most
}

// expire removes answers that are older than largeTTL, and sets the timer for the next one.
func (l *Store) expire() {
	var dropped []*keptAnswer
	defer func() { free(dropped) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for l.order.Len() > 0 {
		oldest := l.order.Front().Value.(*keptAnswer)
		if oldest.until.After(now) {
			l.sweep = time.AfterFunc(oldest.until.Sub(now), l.expire)
			return
		}
		dropped = append(dropped, l.dropLocked(oldest))
	}
	l.sweep = nil
}

// dropLocked removes an answer, and returns it to be freed.
func (l *Store) dropLocked(k *keptAnswer) *keptAnswer {
	l.order.Remove(l.kept[k.id])
	delete(l.kept, k.id)
	k.of.order.Remove(k.within)
	k.caller.order.Remove(k.listed)
	size := int64(k.Size())
	l.size -= size
	k.of.size -= size
	if k.of.order.Len() == 0 {
		delete(l.of, k.by.Owner.Tenant())
	}
	k.caller.size -= size
	if k.caller.order.Len() == 0 {
		delete(l.caller, k.by.Caller)
	}
	return k
}

// Sizes returns how many bytes are kept for each caller, by its name.
func (l *Store) Sizes() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make(map[string]int64, len(l.caller))
	for name, of := range l.caller {
		all[name] = of.size
	}
	return all
}

// DropOf removes the answers of some authenticated callers.
func (l *Store) DropOf(is func(caller string) bool) {
	var dropped []*keptAnswer
	defer func() { free(dropped) }()
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := l.order.Front(); at != nil; {
		k := at.Value.(*keptAnswer)
		at = at.Next()
		if k.by.Owner.Caller != "" && is(k.by.Owner.Caller) {
			dropped = append(dropped, l.dropLocked(k))
		}
	}
}

// Get returns an answer of a caller. The caller is "" without authentication.
func (l *Store) Get(id, caller string) (Kept, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.kept[id]
	if !ok {
		return Kept{}, false
	}
	k := at.Value.(*keptAnswer)
	return k.Kept, k.by.Owner.Caller == caller && k.until.After(time.Now())
}

// Close stops the timer of expire.
func (l *Store) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweep != nil {
		l.sweep.Stop()
	}
}
