package logging

import (
	"bytes"
	"context"
	"slices"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/observe/history"
)

const (
	// maxHeld bounds the bytes of the newest lines, which are held until all are known.
	maxHeld = 16 << 20
	// maxCounting bounds who looks for the newest lines at once, in turn, and also who does outside of turns. Others wait.
	maxCounting = 2
)

// Each that looks for the newest lines has a place of inTurn or beside. One in turn may take long, behind other work of its caller: so a
// caller has one of these places at most, and those of the control socket do not wait for them.
var inTurn, beside = turns.NewCapped(maxCounting, 1), turns.NewQueue(maxCounting, 0)

// count takes a place to look for the newest lines, which done gives back. It is not ok if ctx ends before.
func count(ctx context.Context) (done func(), ok bool) {
	owner, places := turns.OwnerIn(ctx), inTurn
	if owner == (turns.Owner{}) {
		places = beside
	}
	if places.Take(ctx, owner) != nil {
		return nil, false
	}
	return func() { places.Give(owner) }, true
}

// newest returns the last lines that q selects of a log file, those that it was rotated to and kept, oldest first. It
// reads the newest file first, and no older ones than it needs.
func newest(ctx context.Context, path string, q history.Query, last int, kept []history.Line) []history.Line {
	done, ok := count(ctx)
	if !ok {
		return nil
	}
	defer done()
	files := openLog(path)
	if files == nil {
		return kept[max(0, len(kept)-last):]
	}
	defer files.close()
	kept = missing(ctx, files, kept)
	rest := &tail{lines: last, bytes: maxHeld}
	rest.read(linesFrom(ctx, files.now, files.size, q.Since), &q)
	found := rest.held
	for _, r := range slices.Backward(files.rotated) {
		if rest = rest.before(); rest == nil || r.last.Before(q.Since.Add(-disorder)) {
			break
		}
		rest.read(func(yield func(history.Line) bool) { r.read(ctx, q.Since, yield) }, &q)
		found = append(rest.held, found...)
	}
	all := make([]history.Line, 0, len(found)+len(kept))
	for _, line := range found {
		for len(kept) > 0 && kept[0].Time.Before(line.Time) {
			all, kept = append(all, kept[0]), kept[1:]
		}
		all = append(all, line)
	}
	all = append(all, kept...)
	return all[max(0, len(all)-last):]
}

// tail holds the last of some lines.
type tail struct {
	lines, bytes int // that it may hold
	held         []history.Line
	size         int
	full         bool // it has left lines out
}

// before returns a tail for the lines before these; nil if there is no room for any.
func (t *tail) before() *tail {
	if t.full || len(t.held) >= t.lines {
		return nil
	}
	return &tail{lines: t.lines - len(t.held), bytes: t.bytes - t.size}
}

// read adds the lines that q selects.
func (t *tail) read(lines func(func(history.Line) bool), q *history.Query) {
	for line := range lines {
		if !q.Matches(&line) {
			continue
		}
		line.JSON = bytes.Clone(line.JSON)
		t.held, t.size = append(t.held, line), t.size+len(line.JSON)
		drop := 0
		for len(t.held)-drop > t.lines || t.size > t.bytes {
			t.size -= len(t.held[drop].JSON)
			t.held[drop] = history.Line{} // its text is not needed any more
			drop++
		}
		t.held, t.full = t.held[drop:], t.full || drop > 0
	}
}
