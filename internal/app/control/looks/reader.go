package looks

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"
)

// Reader is what one stream has told of. Only one goroutine may use it, and has to call Close.
type Reader struct {
	looks *Looks
	told  *look
	later map[string]seen // what was told of single things since then
}

// seen is a thing as it was at a time of its own.
type seen struct {
	text []byte
	at   time.Time
}

// News are what differs from what was told before. Their texts are JSON, which is not to be changed.
type News struct {
	Rest   []byte // what there is beside the things; nil if it is the same
	Things [][]byte
	Gone   []string // names
}

// Read returns a Reader that was told nothing.
func (l *Looks) Read() *Reader {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers++
	return &Reader{looks: l, later: map[string]seen{}}
}

// Close ends the reading.
func (r *Reader) Close() {
	r.looks.mu.Lock()
	defer r.looks.mu.Unlock()
	if r.looks.readers--; r.looks.readers == 0 {
		r.looks.last = nil
	}
}

// Looked is when the look began of which was told; zero for none.
func (r *Reader) Looked() time.Time {
	if r.told == nil {
		return time.Time{}
	}
	return r.told.began
}

// All returns what is new of all things, by a look that is newer than the last, whoever made it. If it is too early for another,
// nothing is new, and again is when there may be one.
func (r *Reader) All(ctx context.Context) (news News, again time.Time) {
	now, again := r.looks.after(ctx, r.told)
	if now == nil {
		return News{}, again
	}
	if !bytes.Equal(now.rest, r.told.before()) {
		news.Rest = now.rest
	}
	before := cursor{in: r.told}
	for _, t := range now.things {
		if known, ok := r.known(&before, t.name, now.began); ok && !bytes.Equal(t.text, known) {
			news.Things = append(news.Things, t.text)
		}
	}
	news.Gone = r.gone(now)
	maps.DeleteFunc(r.later, func(_ string, s seen) bool { return s.at.Before(now.began) })
	r.told = now
	return news, time.Time{}
}

// known returns what was told of a thing; nil for nothing. It reports false if that is not older than a time.
func (r *Reader) known(before *cursor, name string, than time.Time) (text []byte, ok bool) {
	if s, single := r.later[name]; single {
		return s.text, s.at.Before(than)
	}
	return before.find(name), true
}

// gone returns the names of what was told of, and is not there at a look.
func (r *Reader) gone(now *look) []string {
	var names []string
	there := cursor{in: now}
	if r.told != nil {
		for _, t := range r.told.things {
			if s, single := r.later[t.name]; there.find(t.name) == nil && (!single || s.at.Before(now.began)) {
				names = append(names, t.name)
			}
		}
	}
	before := cursor{in: r.told}
	for name, s := range r.later {
		if there.find(name) == nil && s.at.Before(now.began) && before.find(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Single returns what is new of some things. It reports whether one of them is not there any more, which All tells.
func (r *Reader) Single(names []string) (news News, missing bool) {
	var text encoded
	for _, name := range names {
		at := time.Now()
		known, _ := r.known(&cursor{in: r.told}, name, at)
		v, ok := r.looks.source.One(name)
		if !ok {
			missing = missing || known != nil
			continue
		}
		if now := text.of(v, known); !bytes.Equal(now, known) {
			r.later[name] = seen{now, at}
			news.Things = append(news.Things, now)
		}
	}
	return news, missing
}
