package podio

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/observe/tail"
)

// Query says which part of the log is read.
type Query struct {
	Since  string // a time, as the log has them before its lines; "" for all
	Tail   int    // the last lines alone; 0 for all
	Follow bool
}

// maxTail is how many lines of the log are searched for the last one that was read.
const maxTail = 1000

// errUnknown is why a connection is of no use.
var errUnknown = errors.New("the connection to the Pod broke, and the Pod's log does not have the output since then")

// join puts together what comes by the log and by the connections, until the connections carry all that comes, or the
// container has ended and all was read.
func (s *spell) join(ctx context.Context, first bool) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	lines := make(chan logLine)
	var reader sync.WaitGroup
	defer reader.Wait()
	defer cancel()
	var failed error
	j := newJoint(time.Now(), func(c side, line []byte) {
		err := errUnknown
		if line != nil {
			err = s.tracks[c].line(line)
		}
		if err != nil && failed == nil {
			failed = err
		}
	})
	var known seen
	if !first {
		if err := s.resume(ctx, j, &known); err != nil {
			return err
		}
	}
	reader.Go(func() {
		defer recovered.To(s.Problems, "read the log of a Pod", func(any) { s.breaks(errPanicked) })
		s.readLog(ctx, &known, lines)
	})
	tick := time.NewTicker(settle / 5)
	defer tick.Stop()
	ended, over := s.Ended, s.over
	var late <-chan time.Time
	for failed == nil && !j.over() {
		select {
		case l, more := <-lines:
			if !more {
				lines = nil // nothing more is written to it
				if late == nil {
					late = time.After(lastWords)
				}
				continue
			}
			j.logged(l, time.Now())
		case p := <-s.pieces:
			if p.part {
				j.ensure(p.side)
				if _, err := s.tracks[p.side].Write(p.line); err != nil {
					failed = err
				}
				continue
			}
			j.said(p.side, p.line, time.Now())
		case now := <-tick.C:
			j.tick(now)
		case <-s.broken:
			return failed // what the log has is read again
		case <-ended:
			ended = nil
			if late == nil && s.links[out] != nil {
				late = time.After(lastWords)
			}
		case <-late:
			j.finish()
		case <-over[out]:
			over[out] = nil
		case <-over[text]:
			over[text] = nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if lines == nil && over[out] == nil && over[text] == nil {
			j.finish()
		}
	}
	return failed
}

// logLine is a line of the log, and its time. text is nil if the line is longer than maxLine.
type logLine struct {
	at, text []byte
	side     side // the probable one
}

// seen knows the last lines of the log that were read: a log is read from the begin of a second on, and lines of the
// two streams may be in it in another order than that of their times.
type seen struct {
	last string // the newest time
	keys map[string]bool
}

// maxSeen bounds seen.keys.
const maxSeen = 20_000

// add reports whether the line is new.
func (n *seen) add(l logLine) bool {
	const enough = 64 // bytes
	key := string(l.at) + string(l.text[:min(len(l.text), enough)])
	if n.keys[key] {
		return false
	}
	if n.keys == nil || len(n.keys) >= maxSeen {
		n.keys = map[string]bool{}
	}
	n.keys[key] = true
	n.last = max(n.last, string(l.at))
	return true
}

// readLog reads the lines of the log that are not known, and what is written to it, until the container has ended. It
// closes lines then.
func (s *spell) readLog(ctx context.Context, known *seen, lines chan<- logLine) {
	defer close(lines)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		over := closed(s.Ended)
		err := s.scan(ctx, Query{Since: known.last, Follow: !over}, func(l logLine) error {
			if !known.add(l) {
				return nil
			}
			select {
			case lines <- l:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if ctx.Err() != nil || err == nil && over {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// scan calls each with each line of a part of the log.
func (s *spell) scan(ctx context.Context, q Query, each func(logLine) error) error {
	log, err := s.Log(ctx, q)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // it was only read
	var failed error
	err = tail.Lines(log, maxLine, func(line []byte, dropped int) {
		at, text, ok := bytes.Cut(line, []byte(" "))
		if !ok || failed != nil {
			return
		}
		l := logLine{bytes.Clone(at), bytes.Clone(text), sideOf(text)}
		if dropped > 0 {
			l.text, l.side = nil, out
		}
		if failed = each(l); failed != nil {
			_ = log.Close() // ends the reading
		}
	})
	return cmp.Or(failed, err)
}

// resume gives a joint what the log has after the last lines that were written. It fails if the log does not have
// those lines.
func (s *spell) resume(ctx context.Context, j *joint, known *seen) error {
	var lines []logLine
	limit, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		lines = lines[:0]
		err := s.scan(limit, Query{Tail: maxTail}, func(l logLine) error {
			lines = append(lines, l)
			return nil
		})
		if err == nil {
			break
		}
		select {
		case <-time.After(pause):
		case <-s.broken:
			return nil // the next spell does it
		case <-limit.Done():
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return errUnknown
		}
	}
	var at [2]int
	for c := range s.tracks {
		at[c] = -1
		t := &s.tracks[c]
		for i := len(lines) - 1; t.any && at[c] < 0 && i >= 0; i-- {
			if t.last.is(lines[i].text) {
				at[c] = i
			}
		}
		if at[c] < 0 && (t.any || len(lines) >= maxTail) {
			return errUnknown
		}
	}
	had := [2]map[uint64]int{s.tracks[out].had.counts(), s.tracks[text].had.counts()}
	for i, l := range lines {
		if !delivered(l, i, at, had) {
			j.logged(l, time.Now())
		}
		known.add(l)
	}
	return nil
}

// delivered reports whether the line i of the log was written already. A line looks like one of its side, and may have
// been one of the other: a message that a process has written on stderr, perhaps for a caller who forges an answer, must
// not be taken for one on stdout later. at has the last lines that were written, and had how often each was, less those
// that delivered has found.
func delivered(l logLine, i int, at [2]int, had [2]map[uint64]int) bool {
	hash := maphash.Bytes(seed, l.text)
	for _, c := range []side{l.side, out + text - l.side} {
		if l.text != nil && i <= at[c] && had[c][hash] > 0 {
			had[c][hash]--
			return true
		}
	}
	return i <= at[l.side] || i == at[out] || i == at[text]
}
