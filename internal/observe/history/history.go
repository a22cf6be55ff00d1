// Package history keeps the last lines of the log, for each tool and for Orla as a whole, and passes
// new ones on to followers.
//
// It does not know how lines are made or where else they are written. A tool's calls, its stderr and
// its other lines have separate bounds, so that neither a busy tool nor one that prints much can
// push out the reason for its own or another tool's crash.
//
// Its invariant: no line makes it exceed its bounds or wait for a reader.
package history

import (
	"bytes"
	"container/list"
	"context"
	"encoding/binary"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/observe/tail"
)

// The events with bounds of their own.
const (
	CallEvent    = "call"
	AttemptEvent = "attempt"
	StderrEvent  = "stderr"
)

// kind is a group of lines that share a bound.
type kind int

const (
	states kind = iota // everything else
	calls
	stderr
	kinds // the number of kinds
)

// The bounds of each kind.
var (
	ofTool = [kinds]tail.Bounds{
		states: {Bytes: 24 << 10, Records: 250}, calls: {Bytes: 16 << 10, Records: 500}, stderr: {Bytes: 40 << 10, Records: 500},
	}
	ofAll = [kinds]tail.Bounds{
		states: {Bytes: 128 << 10, Records: 1000}, calls: {Bytes: 64 << 10, Records: 500}, stderr: {Bytes: 128 << 10, Records: 1000},
	}
)

const (
	// maxTools bounds the number of tools. The one whose last line is oldest is removed first.
	maxTools = 10_000
	// maxBytes bounds all tools together. Beyond it, each tool gets at most leastBytes for each kind of
	// line.
	maxBytes   = 64 << 20
	leastBytes = 2 << 10
	// maxName is longer than any name of a tool. A line with a longer name is not a tool's.
	maxName = 64
	// maxEvent bounds the name of an event.
	maxEvent = 512
)

// Line is one line of the log.
type Line struct {
	Time  time.Time
	Level slog.Level
	Tool  string // that it is about; "" for Orla itself
	Event string // the msg of the record
	JSON  []byte // the line of the JSON log, without the newline; not to be changed
}

// only marks a context whose records go only to the history.
type only struct{ context.Context }

// Only returns a context for records that go to the history, and not to the log.
func Only(ctx context.Context) context.Context { return only{ctx} }

// IsOnly reports whether ctx was returned by Only. A context made from it does not count.
func IsOnly(ctx context.Context) bool {
	_, is := ctx.(only) // every record needs this: looking up a context value costs more
	return is
}

// History keeps lines. Its methods may be called from any goroutine.
type History struct {
	mu        sync.Mutex               // guards the fields that follow
	all       story                    // the lines of all tools and Orla itself
	tools     map[string]*list.Element // elements of recent, by name
	recent    list.List                // of *story, ordered by the time of the last line, the newest first
	bytes     int                      // used by the tools' stories
	lines     uint64                   // number of lines ever added
	prefix    []byte                   // buffer for the record of the line being added
	followers map[*follower]struct{}
}

// story has the lines of one tool, or all lines.
type story struct {
	tool  string
	kinds [kinds]tail.Ring
}

// New returns an empty History. It uses memory only for the lines that it has.
func New() *History {
	return &History{tools: map[string]*list.Element{}, followers: map[*follower]struct{}{}}
}

// Add keeps a copy of a line and passes it on. It never blocks: a slow follower misses the line. A
// line that is longer than half of the bound of its kind is shortened.
func (h *History) Add(line Line) {
	if len(line.Tool) > maxName {
		line.Tool = ""
	}
	line.Event = line.Event[:min(len(line.Event), maxEvent)]
	k := kindOf(line.Event)
	line.JSON = shortened(line.JSON, ofTool[k].Bytes/2)

	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines++
	h.prefix = appendPrefix(h.prefix[:0], line, h.lines)
	h.all.kinds[k].Push(ofAll[k], h.prefix, line.JSON)
	if line.Tool != "" {
		h.tell(line, k)
	}
	var copied []byte // shared by all followers
	for f := range h.followers {
		if f.query.Matches(&line) {
			if copied == nil {
				copied = bytes.Clone(line.JSON)
				line.JSON = copied
			}
			f.take(line)
		}
	}
}

// tell adds a line to its tool's story.
func (h *History) tell(line Line, k kind) {
	element := h.tools[line.Tool]
	if element == nil {
		if h.recent.Len() >= maxTools {
			h.forget(h.recent.Back())
		}
		element = h.recent.PushFront(&story{tool: line.Tool})
		h.tools[line.Tool] = element
	} else {
		h.recent.MoveToFront(element)
	}
	of, _ := element.Value.(*story) // recent has only stories
	ring, bounds := &of.kinds[k], ofTool[k]
	before := ring.Size()
	if h.bytes >= maxBytes {
		bounds.Bytes = max(before, leastBytes)
		line.JSON = shortened(line.JSON, bounds.Bytes/2)
	}
	ring.Push(bounds, h.prefix, line.JSON)
	h.bytes += ring.Size() - before
}

// forget removes a tool's story.
func (h *History) forget(element *list.Element) {
	of, _ := h.recent.Remove(element).(*story) // recent has only stories
	delete(h.tools, of.tool)
	for k := range of.kinds {
		h.bytes -= of.kinds[k].Size()
	}
}

// kindOf returns the kind of lines with an event.
func kindOf(event string) kind {
	switch event {
	case CallEvent, AttemptEvent:
		return calls
	case StderrEvent:
		return stderr
	}
	return states
}

// appendTo appends copies of the records of every kind.
func (s *story) appendTo(records [][]byte) [][]byte {
	for k := range s.kinds {
		records = append(records, s.kinds[k].Records()...)
	}
	return records
}

// headSize is the size of the fixed part of a record: the line's number, its time, its level, and
// the lengths of tool and event.
const headSize = 8 + 8 + 4 + 2 + 2

// appendPrefix appends the record of line n without its JSON.
func appendPrefix(b []byte, line Line, n uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, n)
	b = binary.LittleEndian.AppendUint64(b, uint64(line.Time.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(line.Level)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(line.Tool)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(line.Event)))
	return append(append(b, line.Tool...), line.Event...)
}

// numbered is a line with its number.
type numbered struct {
	Line
	n uint64
}

// read decodes a record.
func read(record []byte) numbered {
	head, rest := record[:headSize], record[headSize:]
	tool := int(binary.LittleEndian.Uint16(head[20:]))
	event := tool + int(binary.LittleEndian.Uint16(head[22:]))
	return numbered{
		n: binary.LittleEndian.Uint64(head),
		Line: Line{
			Time:  time.Unix(0, int64(binary.LittleEndian.Uint64(head[8:]))),
			Level: slog.Level(int32(binary.LittleEndian.Uint32(head[16:]))),
			Tool:  string(rest[:tool]),
			Event: string(rest[tool:event]),
			JSON:  rest[event:],
		},
	}
}

// Query selects lines. The zero Query selects all that are kept.
type Query struct {
	Tools []string // only lines of these tools; empty for all tools and Orla itself
	// Also reports whether to select new lines of further tools. It must neither block nor log. It may
	// be nil.
	Also   func(tool string) bool
	Last   int       // at most so many of the kept lines, the newest; 0 for all, below 0 for none
	Since  time.Time // only lines from then on; zero for all
	Events []string  // only these events; empty for all
	// Keep reports whether to select a line, given as JSON. It must neither block nor log. nil selects
	// all.
	Keep func(line []byte) bool
	// Pace is the least time between two looks of Follow at what is new; 0 for none. Without it, a busy log wakes
	// the follower for each line.
	Pace time.Duration
	// Past replaces the kept lines that Follow begins with. It is called when no new line is missed any more. It
	// may be nil.
	Past func(kept []Line) iter.Seq[Line]
}

// Matches reports whether q selects a line, whatever Last says.
func (q *Query) Matches(line *Line) bool {
	return (len(q.Tools) == 0 || slices.Contains(q.Tools, line.Tool) || q.Also != nil && q.Also(line.Tool)) &&
		!line.Time.Before(q.Since) &&
		(len(q.Events) == 0 || slices.Contains(q.Events, line.Event)) &&
		(q.Keep == nil || q.Keep(line.JSON))
}

// Last returns the kept lines that q selects, oldest first.
func (h *History) Last(q Query) []Line {
	h.mu.Lock()
	records := h.records(q)
	h.mu.Unlock()
	return pick(q, records)
}

// records copies the records that may match a query. The caller holds mu.
func (h *History) records(q Query) (records [][]byte) {
	if len(q.Tools) == 0 {
		return h.all.appendTo(nil)
	}
	for _, tool := range q.Tools {
		if element := h.tools[tool]; element != nil {
			of, _ := element.Value.(*story) // recent has only stories
			records = of.appendTo(records)
		}
	}
	return records
}

// pick returns the lines of records that q selects, in the order in which they were added.
func pick(q Query, records [][]byte) []Line {
	if q.Last < 0 {
		return nil
	}
	var found []numbered
	for _, record := range records {
		if line := read(record); q.Matches(&line.Line) {
			found = append(found, line)
		}
	}
	slices.SortFunc(found, func(a, b numbered) int { return int(int64(a.n - b.n)) })
	found = slices.CompactFunc(found, func(a, b numbered) bool { return a.n == b.n }) // from a tool that is in q.Tools twice
	if q.Last > 0 {
		found = found[max(0, len(found)-q.Last):]
	}
	lines := make([]Line, len(found))
	for i, line := range found {
		lines[i] = line.Line
	}
	return lines
}
