package results

import (
	"container/list"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
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
	Large
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
	// encoded is what EncodedSize has returned; 0 before. It is nil for a part, and for what is not kept.
	encoded *atomic.Int64
}

// Size returns its size in bytes.
func (a Large) Size() int { return len(a.text) + len(a.blob) }

// EncodedSize returns its size as JSON, in bytes: the most that it can be.
func (a Large) EncodedSize() int64 {
	if a.encoded != nil && a.encoded.Load() > 0 {
		return a.encoded.Load()
	}
	size := jsonSize(a.text) + int64(base64.StdEncoding.EncodedLen(len(a.blob)))
	if a.encoded != nil {
		a.encoded.Store(size)
	}
	return size
}

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
	id := rand.Text()
	a.encoded = new(atomic.Int64)
	l.mu.Lock()
	defer l.mu.Unlock()
	if has := l.caller[by.Caller]; limit > 0 && has != nil {
		for has.size+size > limit && has.order.Len() > 0 {
			oldest := has.order.Front().Value.(*keptAnswer)
			if oldest.by.Call == by.Call {
				return "", limit, false
			}
			l.dropLocked(oldest)
		}
	}
	k := &keptAnswer{Large: a, id: id, by: by, until: time.Now().Add(largeTTL), of: added(l.of, by.Owner.Tenant(), size), caller: added(l.caller, by.Caller, size)}
	k.within, k.listed = k.of.order.PushBack(k), k.caller.order.PushBack(k)
	l.kept[id] = l.order.PushBack(k)
	l.size += size
	for l.size > largeBudget && l.order.Len() > 1 {
		oldest := l.mostLocked().order.Front().Value.(*keptAnswer)
		if oldest == k { // its client has not even the link
			oldest = l.order.Front().Value.(*keptAnswer)
		}
		l.dropLocked(oldest)
	}
	if l.sweep == nil {
		l.sweep = time.AfterFunc(largeTTL, l.expire)
	}
	return Prefix + id, 0, true
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
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for l.order.Len() > 0 {
		oldest := l.order.Front().Value.(*keptAnswer)
		if oldest.until.After(now) {
			l.sweep = time.AfterFunc(oldest.until.Sub(now), l.expire)
			return
		}
		l.dropLocked(oldest)
	}
	l.sweep = nil
}

func (l *Store) dropLocked(k *keptAnswer) {
	l.order.Remove(l.kept[k.id])
	delete(l.kept, k.id)
	k.of.order.Remove(k.within)
	k.caller.order.Remove(k.listed)
	size := int64(k.Size())
	l.size -= size
	if k.of.size -= size; k.of.order.Len() == 0 {
		delete(l.of, k.by.Owner.Tenant())
	}
	if k.caller.size -= size; k.caller.order.Len() == 0 {
		delete(l.caller, k.by.Caller)
	}
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
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := l.order.Front(); at != nil; {
		k := at.Value.(*keptAnswer)
		at = at.Next()
		if k.by.Owner.Caller != "" && is(k.by.Owner.Caller) {
			l.dropLocked(k)
		}
	}
}

// Get returns an answer of a caller. The caller is "" without authentication.
func (l *Store) Get(id, caller string) (Large, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.kept[id]
	if !ok {
		return Large{}, false
	}
	k := at.Value.(*keptAnswer)
	return k.Large, k.by.Owner.Caller == caller && k.until.After(time.Now())
}

// Close stops the timer of expire.
func (l *Store) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweep != nil {
		l.sweep.Stop()
	}
}

// Read returns the answer as the result of a resources/read. size is EncodedSize. self is the server's Implementation
// as JSON in the stateless era; nil in the others.
func (a Large) Read(uri string, size int64, self json.RawMessage) wire.Parts {
	head := append([]byte(`{"contents":[{"uri":`), rawjson.Quote(uri)...)
	if a.mime != "" {
		head = append(append(head, `,"mimeType":`...), rawjson.Quote(a.mime)...)
	}
	var whole []byte
	if a.blob != nil {
		head = append(head, `,"blob":`...)
		whole = append(make([]byte, 0, base64.StdEncoding.EncodedLen(len(a.blob))+2), '"')
		whole = append(base64.StdEncoding.AppendEncode(whole, a.blob), '"')
	} else {
		head = append(head, `,"text":`...)
		whole = rawjson.AppendQuote(make([]byte, 0, size), a.text)
	}
	if self == nil {
		return wire.Parts{head, whole, []byte("}]}")}
	}
	const era = `}],"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"` + mcp.MetaKeyServerInfo + `":`
	return wire.Parts{head, whole, []byte(era), self, []byte("}}")}
}

// Part returns up to most bytes, from an offset on. Both ends of a text are moved back to the
// beginning of a rune, so that consecutive parts neither overlap nor leave a gap.
func (a Large) Part(from, most int) Large {
	a.encoded = nil
	size := a.Size()
	from = min(from, size)
	to := from + min(most, size-from)
	if a.blob != nil {
		a.blob = a.blob[from:to]
		return a
	}
	a.text = a.text[runeStart(a.text, from):runeStart(a.text, to)]
	return a
}
