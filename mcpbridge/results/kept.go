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
	mu    sync.Mutex // guards what follows
	kept  map[string]*list.Element
	order list.List // of *keptAnswer, oldest first
	of    map[turns.Owner]*keptOf
	size  int64
	sweep *time.Timer // set while something is kept
}

// keptOf is what is kept for one caller, or for a session without a caller.
type keptOf struct {
	order list.List // of *keptAnswer, oldest first
	size  int64
}

// keptAnswer is an answer in a Store.
type keptAnswer struct {
	Large
	id     string
	owner  turns.Owner // whose call it answers
	until  time.Time
	of     *keptOf
	within *list.Element // in of.order
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

// NewStore returns an empty Store.
func NewStore() *Store {
	return &Store{kept: map[string]*list.Element{}, of: map[turns.Owner]*keptOf{}}
}

// keep stores an answer for its owner and returns its URI, which cannot be guessed. Without
// room, the caller with the most bytes loses its oldest answers.
func (l *Store) keep(a Large, owner turns.Owner) string {
	id := rand.Text()
	a.encoded = new(atomic.Int64)
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of[owner.Tenant()]
	if of == nil {
		of = &keptOf{}
		l.of[owner.Tenant()] = of
	}
	k := &keptAnswer{Large: a, id: id, owner: owner, until: time.Now().Add(largeTTL), of: of}
	k.within = of.order.PushBack(k)
	l.kept[id] = l.order.PushBack(k)
	of.size += int64(a.Size())
	l.size += int64(a.Size())
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
	return Prefix + id
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
	l.size -= int64(k.Size())
	if k.of.size -= int64(k.Size()); k.of.order.Len() == 0 {
		delete(l.of, k.owner.Tenant())
	}
}

// DropOf removes the answers of some authenticated callers.
func (l *Store) DropOf(is func(caller string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := l.order.Front(); at != nil; {
		k := at.Value.(*keptAnswer)
		at = at.Next()
		if k.owner.Caller != "" && is(k.owner.Caller) {
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
	return k.Large, k.owner.Caller == caller && k.until.After(time.Now())
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
