package mcpbridge

import (
	"container/list"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

const (
	largePrefix = "orla://answers/"
	// largeTTL is how long a large answer can be read.
	largeTTL = 10 * time.Minute
	// largeBudget bounds all kept answers together in bytes.
	largeBudget = 128 << 20
)

// largeAnswers keeps what was too large to send, for a while.
type largeAnswers struct {
	mu    sync.Mutex // guards what follows
	kept  map[string]*list.Element
	order list.List // of *keptAnswer, oldest first
	of    map[turns.Line]*keptOf
	size  int64
	sweep *time.Timer // set while something is kept
}

// keptOf is what is kept of one caller, or of a session without one.
type keptOf struct {
	order list.List // of *keptAnswer, oldest first
	size  int64
}

type keptAnswer struct {
	largeAnswer
	id     string
	owner  turns.Line // whose call it answers
	until  time.Time
	of     *keptOf
	within *list.Element // in of.order
}

type largeAnswer struct {
	text string // non-empty, or
	blob []byte
	mime string
}

func (a largeAnswer) size() int64 { return int64(len(a.text) + len(a.blob)) }

// encodedSize is how long it is as JSON, in bytes.
func (a largeAnswer) encodedSize() int64 {
	return jsonSize(a.text) + int64(base64.StdEncoding.EncodedLen(len(a.blob)))
}

func newLargeAnswers() *largeAnswers {
	return &largeAnswers{kept: map[string]*list.Element{}, of: map[turns.Line]*keptOf{}}
}

// keep stores an answer for its owner and returns the unguessable URI it can be read
// at. When there is no room, whoever has the most loses the oldest.
func (l *largeAnswers) keep(a largeAnswer, owner turns.Line) string {
	id := rand.Text()
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.of[owner.Tenant()]
	if of == nil {
		of = &keptOf{}
		l.of[owner.Tenant()] = of
	}
	k := &keptAnswer{largeAnswer: a, id: id, owner: owner, until: time.Now().Add(largeTTL), of: of}
	k.within = of.order.PushBack(k)
	l.kept[id] = l.order.PushBack(k)
	of.size += a.size()
	l.size += a.size()
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
	return largePrefix + id
}

// mostLocked returns the caller that has the most.
func (l *largeAnswers) mostLocked() (most *keptOf) {
	for _, of := range l.of { // each has an answer too large to be inline
		if most == nil || of.size > most.size {
			most = of
		}
	}
	return most
}

// expire forgets what is over, and comes again while there is more.
func (l *largeAnswers) expire() {
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

func (l *largeAnswers) dropLocked(k *keptAnswer) {
	l.order.Remove(l.kept[k.id])
	delete(l.kept, k.id)
	k.of.order.Remove(k.within)
	l.size -= k.size()
	if k.of.size -= k.size(); k.of.order.Len() == 0 {
		delete(l.of, k.owner.Tenant())
	}
}

// dropOf forgets what some authenticated callers have.
func (l *largeAnswers) dropOf(is func(caller string) bool) {
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

// get returns an answer of a caller, "" for any that came without authentication.
func (l *largeAnswers) get(id, caller string) (largeAnswer, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.kept[id]
	if !ok {
		return largeAnswer{}, false
	}
	k := at.Value.(*keptAnswer)
	return k.largeAnswer, k.owner.Caller == caller && k.until.After(time.Now())
}

func (l *largeAnswers) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sweep != nil {
		l.sweep.Stop()
	}
}

// read is the answer as the result of a resources/read. self is what the server says of
// itself in the stateless era; nil in the others.
func (a largeAnswer) read(uri string, self json.RawMessage) wire.Parts {
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
		whole = rawjson.Quote(a.text)
	}
	if self == nil {
		return wire.Parts{head, whole, []byte("}]}")}
	}
	const era = `}],"resultType":"complete","ttlMs":0,"cacheScope":"private","_meta":{"` + mcp.MetaKeyServerInfo + `":`
	return wire.Parts{head, whole, []byte(era), self, []byte("}}")}
}

// part returns the bytes from on, most at most. Text begins and ends where
// runes do, at or before the bytes that were asked for, so that neighbouring
// parts neither overlap nor leave a gap.
func (a largeAnswer) part(from, most int) largeAnswer {
	size := int(a.size())
	from = min(from, size)
	to := from + min(most, size-from)
	if a.blob != nil {
		a.blob = a.blob[from:to]
		return a
	}
	a.text = a.text[runeStart(a.text, from):runeStart(a.text, to)]
	return a
}
