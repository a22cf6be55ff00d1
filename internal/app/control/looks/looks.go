// Package looks finds what is new of many things for the streams that tell of it (SPEC O1, O4). A look at all things is
// expensive, so streams share it: each keeps a pointer to the one that it has told of, and what is the same in two of them has
// the same bytes.
package looks

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// restFor is how many times as long as the last look took there is none after it.
const restFor = 20

// Source is what is looked at. Its methods may be called from any goroutine.
type Source interface {
	// All calls each with every thing, and returns what there is beside them. What it passes on is encoded as JSON.
	All(each func(name string, v any)) (rest any)
	// One returns one of the things; false if there is none of that name.
	One(name string) (v any, ok bool)
}

// Looks are the looks that streams share. Its methods may be called from any goroutine.
type Looks struct {
	source Source
	turn   chan struct{} // holds a value while somebody looks at all

	mu      sync.Mutex // guards the fields that follow
	readers int
	last    *look // nil without a reader
}

// New returns Looks at a source. They keep nothing while there is no Reader.
func New(source Source) *Looks {
	return &Looks{source: source, turn: make(chan struct{}, 1)}
}

// look is what all things were at one moment. It is never changed.
type look struct {
	began  time.Time
	took   time.Duration
	rest   []byte
	things []thing // sorted by name
}

// thing is the JSON of one of them.
type thing struct {
	name string
	text []byte
}

// next is the earliest time of the next look.
func (l *look) next() time.Time { return l.began.Add((1 + restFor) * l.took) }

// before returns what there was beside the things; nil for no look.
func (l *look) before() []byte {
	if l == nil {
		return nil
	}
	return l.rest
}

// cursor finds the things of a look, which is nil for none. It is quick for names in their order.
type cursor struct {
	in   *look
	next int
}

// find returns the text of a thing; nil if there is none.
func (c *cursor) find(name string) []byte {
	if c.in == nil {
		return nil
	}
	things := c.in.things
	if c.next >= len(things) || things[c.next].name != name {
		at, ok := slices.BinarySearchFunc(things, name, func(t thing, name string) int { return cmp.Compare(t.name, name) })
		if c.next = at; !ok {
			return nil
		}
	}
	c.next++
	return things[c.next-1].text
}

// after returns a look that is newer than one, which may be nil: one that somebody made, or else another. If it is too early for
// another, it returns from when on there may be one.
func (l *Looks) after(ctx context.Context, than *look) (newer *look, again time.Time) {
	if newer, again = l.made(than); newer != nil || !again.IsZero() {
		return newer, again
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, time.Time{}
	}
	defer func() { <-l.turn }()
	if newer, again = l.made(than); newer != nil || !again.IsZero() {
		return newer, again // somebody has looked meanwhile
	}
	newer = l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = newer
	return newer, time.Time{}
}

// made returns the newest look if it is newer than one, or from when on there may be another; neither if there may be one now.
// Who has seen none takes an old one only while there may be no other.
func (l *Looks) made(than *look) (newer *look, again time.Time) {
	last := l.newest()
	if last == nil {
		return nil, time.Time{}
	}
	rests := time.Until(last.next()) > 0
	switch {
	case last != than && (rests || than != nil):
		return last, time.Time{}
	case rests:
		return nil, last.next()
	}
	return nil, time.Time{}
}

func (l *Looks) newest() *look {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// look looks at all things.
func (l *Looks) look() *look {
	last := l.newest()
	now := &look{began: time.Now()}
	if last != nil {
		now.things = make([]thing, 0, len(last.things))
	}
	before := cursor{in: last}
	var text encoded
	rest := l.source.All(func(name string, v any) {
		now.things = append(now.things, thing{name, text.of(v, before.find(name))})
	})
	now.rest = text.of(rest, last.before())
	byName := func(a, b thing) int { return cmp.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(now.things, byName) {
		slices.SortFunc(now.things, byName)
	}
	now.took = time.Since(now.began)
	return now
}

// encoded is room for JSON.
type encoded struct{ bytes.Buffer }

// of returns the JSON of a value: the text before, if it is the same.
func (e *encoded) of(v any, before []byte) []byte {
	e.Reset()
	if err := json.NewEncoder(e).Encode(v); err != nil { // texts, numbers and times
		panic(err)
	}
	text := bytes.TrimSuffix(e.Bytes(), []byte("\n"))
	if bytes.Equal(text, before) {
		return before
	}
	return bytes.Clone(text)
}
