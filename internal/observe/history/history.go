// Package history keeps the last lines of the log, for each tool and for all of
// Orla, and passes new ones on to whoever follows.
//
// It knows nothing of how lines come to be or where else they go. What it keeps
// of a tool is bounded thrice, for its calls, for what it writes to stderr and
// for the rest, so that neither a busy nor a talkative tool can push out why it
// crashed, or that another did.
//
// Its invariant: nothing that comes in makes it hold more than its bounds, or
// wait for a reader.
package history

import (
	"bytes"
	"container/list"
	"context"
	"encoding/binary"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/observe/tail"
)

// The events of the lines that are kept apart from the others.
const (
	CallEvent    = "call"
	AttemptEvent = "attempt"
	StderrEvent  = "stderr"
)

// kind is which lines push out one another.
type kind int

const (
	states kind = iota // all but the others
	calls
	stderr
	kinds // how many there are
)

// What is kept of each kind.
var (
	ofTool = [kinds]tail.Bounds{
		states: {Bytes: 24 << 10, Records: 250}, calls: {Bytes: 16 << 10, Records: 500}, stderr: {Bytes: 40 << 10, Records: 500},
	}
	ofAll = [kinds]tail.Bounds{
		states: {Bytes: 128 << 10, Records: 1000}, calls: {Bytes: 64 << 10, Records: 500}, stderr: {Bytes: 128 << 10, Records: 1000},
	}
)

const (
	// maxTools bounds the tools that are known. The one that has been silent
	// for longest is forgotten first.
	maxTools = 10_000
	// maxBytes is what all tools may take before none gets more than leastBytes
	// for each kind of line.
	maxBytes   = 64 << 20
	leastBytes = 2 << 10
	// maxName is longer than any name of a tool. What is not a tool's belongs to
	// Orla alone.
	maxName = 64
	// maxEvent bounds the name of an event.
	maxEvent = 512
)

// Line is one line of the log.
type Line struct {
	Time  time.Time
	Level slog.Level
	Tool  string // that it is about; "" for Orla itself
	Event string // the record's msg
	JSON  []byte // the line as the JSON log has it, without its end; not to be changed
}

// only is a context whose records are for the history alone.
type only struct{ context.Context }

// Only returns a context with which a record goes to the history, and not into the log.
func Only(ctx context.Context) context.Context { return only{ctx} }

// IsOnly reports whether a record with ctx does. ctx must be what Only returned.
func IsOnly(ctx context.Context) bool {
	_, is := ctx.(only) // each record of each call asks: to look for a value would cost more
	return is
}

// History keeps lines. Its methods may be called from any goroutine.
type History struct {
	mu        sync.Mutex               // guards what follows
	all       story                    // of everything
	tools     map[string]*list.Element // of recent, by name
	recent    list.List                // of *story, the tool that spoke last in front
	bytes     int                      // that the stories of tools take
	lines     uint64                   // that were ever added
	prefix    []byte                   // of the record of the line that is being added
	followers map[*follower]struct{}
}

// story is what is kept of a tool, or of everything.
type story struct {
	tool  string
	kinds [kinds]tail.Ring
}

// New returns an empty History. It takes memory as lines come.
func New() *History {
	return &History{tools: map[string]*list.Element{}, followers: map[*follower]struct{}{}}
}

// Add keeps a copy of a line and passes it on. It never blocks: a follower that
// is slow loses the line. A line that is longer than half of what is kept for
// its kind is shortened.
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
	var copied []byte // for all followers
	for f := range h.followers {
		if f.query.matches(&line) {
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
	of, _ := element.Value.(*story) // nothing else is in the list
	ring, bounds := &of.kinds[k], ofTool[k]
	before := ring.Size()
	if h.bytes >= maxBytes {
		bounds.Bytes = max(before, leastBytes)
		line.JSON = shortened(line.JSON, bounds.Bytes/2)
	}
	ring.Push(bounds, h.prefix, line.JSON)
	h.bytes += ring.Size() - before
}

// forget drops a tool's story.
func (h *History) forget(element *list.Element) {
	of, _ := h.recent.Remove(element).(*story) // nothing else is in the list
	delete(h.tools, of.tool)
	for k := range of.kinds {
		h.bytes -= of.kinds[k].Size()
	}
}

// kindOf is the kind of the lines of an event.
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

// headSize is what stands before the texts of a line in a ring: which line it
// is, its time, its level, and how long its tool and event are.
const headSize = 8 + 8 + 4 + 2 + 2

// appendPrefix appends all of line n's record but its JSON.
func appendPrefix(b []byte, line Line, n uint64) []byte {
	b = binary.LittleEndian.AppendUint64(b, n)
	b = binary.LittleEndian.AppendUint64(b, uint64(line.Time.UnixNano()))
	b = binary.LittleEndian.AppendUint32(b, uint32(int32(line.Level)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(line.Tool)))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(line.Event)))
	return append(append(b, line.Tool...), line.Event...)
}

// numbered is a line and how many came before it.
type numbered struct {
	Line
	n uint64
}

// read makes a line of a record.
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

// Query says which lines are wanted. The zero Query wants all that are kept.
type Query struct {
	Tools []string // of these alone; empty for all tools and Orla itself
	// Also says of what tools beside these new lines are wanted. It must neither
	// block nor log. nil is none.
	Also   func(tool string) bool
	Last   int       // at most so many of those that are kept; 0 for all, below 0 for none
	Since  time.Time // none from before it; zero for no bound
	Events []string  // these alone; empty for all
	// Keep says of a line, as JSON, whether it is wanted. It must neither block nor log.
	// nil wants all.
	Keep func(line []byte) bool
}

func (q *Query) matches(line *Line) bool {
	return (len(q.Tools) == 0 || slices.Contains(q.Tools, line.Tool) || q.Also != nil && q.Also(line.Tool)) &&
		!line.Time.Before(q.Since) &&
		(len(q.Events) == 0 || slices.Contains(q.Events, line.Event)) &&
		(q.Keep == nil || q.Keep(line.JSON))
}

// Last returns the lines that are kept and wanted, oldest first.
func (h *History) Last(q Query) []Line {
	h.mu.Lock()
	records := h.records(q)
	h.mu.Unlock()
	return pick(q, records)
}

// records copies what is kept of what a query is about. The caller holds mu.
func (h *History) records(q Query) (records [][]byte) {
	if len(q.Tools) == 0 {
		return h.all.appendTo(nil)
	}
	for _, tool := range q.Tools {
		if element := h.tools[tool]; element != nil {
			of, _ := element.Value.(*story) // nothing else is in the list
			records = of.appendTo(records)
		}
	}
	return records
}

// pick returns the wanted ones of records, in the order in which they came.
func pick(q Query, records [][]byte) []Line {
	if q.Last < 0 {
		return nil
	}
	var found []numbered
	for _, record := range records {
		if line := read(record); q.matches(&line.Line) {
			found = append(found, line)
		}
	}
	slices.SortFunc(found, func(a, b numbered) int { return int(int64(a.n - b.n)) })
	found = slices.CompactFunc(found, func(a, b numbered) bool { return a.n == b.n }) // of a tool that was asked for twice
	if q.Last > 0 {
		found = found[max(0, len(found)-q.Last):]
	}
	lines := make([]Line, len(found))
	for i, line := range found {
		lines[i] = line.Line
	}
	return lines
}
