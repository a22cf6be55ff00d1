package audit

import (
	"sync"
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// smallArgs is the size, in bytes, up to which arguments are kept for who makes the lines. Larger ones are hashed by
// who has made the call, since others would wait for that.
const smallArgs = 1 << 10

// queue is what is to be written.
type queue struct {
	mu      sync.Mutex // guards the fields that follow
	waiting batch
	lost    int           // calls that could not be recorded
	emptied chan struct{} // closed when waiting is taken
}

// batch is lines that are to be made, in their order. One goroutine makes those that wait, one after the other: if each
// call makes its own in between other work, that takes twice the time.
type batch struct {
	lines []waitingLine
	room  []byte // for what lines refer to
	size  int    // about how many bytes all of it has
}

// waitingLine is a line that is to be made, of one of the two.
type waitingLine struct {
	body []byte // what follows seq and prev; nil if it is made of call
	call Call
}

// keep returns a copy of some bytes in the room of a batch.
func (b *batch) keep(some []byte) []byte {
	if len(some) == 0 {
		return some
	}
	start := len(b.room)
	b.room = append(b.room, some...)
	return b.room[start:len(b.room):len(b.room)]
}

// add returns a line at the end, whose texts have so many bytes.
func (b *batch) add(size int) *waitingLine {
	b.size += size + lineRoom
	b.lines = append(b.lines, waitingLine{})
	return &b.lines[len(b.lines)-1]
}

// reset makes a batch empty, and keeps its room unless that is large: lines that come together are few as a rule.
func (b *batch) reset() {
	clear(b.lines) // nobody else keeps the texts
	if b.size > maxPending/4 {
		*b = batch{}
	}
	*b = batch{lines: b.lines[:0], room: b.room[:0]}
}

// lineRoom is about what a line has besides its texts, in bytes, and what a waitingLine has.
const lineRoom = 280

// scratch is room to make a line in.
type scratch struct {
	body []byte
	rawjson.Canonicalizer
}

var scratches = sync.Pool{New: func() any { return &scratch{body: make([]byte, 0, 1024)} }}

// Record appends the line of a call. The line is written within a few milliseconds. If too many lines wait
// to be written, Record waits for their write.
func (l *Log) Record(c *Call) {
	full, size := l.full.Load(), c.size()
	if args := len(c.Args) + len(c.Input); full || args > smallArgs || size > maxText {
		ended := time.Now().Add(c.Ended - l.Now())
		l.append(func(out []byte, in *rawjson.Canonicalizer) []byte { return c.appendTo(out, ended, full, in) })
		return
	}
	l.mu.Lock()
	if l.hasRoomLocked() {
		line := l.waiting.add(size + len(c.Args) + len(c.Input))
		line.call = *c
		line.call.Args, line.call.Input = l.waiting.keep(c.Args), l.waiting.keep(c.Input)
	}
	l.mu.Unlock()
}

// size returns how many bytes the texts of a call have.
func (c *Call) size() int {
	return len(c.Caller) + len(c.Agent) + len(c.Task) + len(c.Tool) + len(c.Target) + len(c.Class) + len(c.Rule) + len(c.Verdict) +
		len(c.Approval) + len(c.Decider) + len(c.Outcome) + len(c.ID) + len(c.Trace)
}

// append appends a line, whose body a function makes.
func (l *Log) append(body func(out []byte, in *rawjson.Canonicalizer) []byte) {
	room := scratches.Get().(*scratch)
	room.body = body(room.body[:0], &room.Canonicalizer)
	l.mu.Lock()
	if l.hasRoomLocked() {
		l.waiting.add(len(room.body)).body = l.waiting.keep(room.body)
	}
	l.mu.Unlock()
	if cap(room.body)+room.Cap() <= maxLine {
		scratches.Put(room)
	}
}

// hasRoomLocked waits until a line can be appended, and has it written soon. It reports false if it cannot be, which it
// counts. The caller holds mu.
func (l *Log) hasRoomLocked() bool {
	for l.waiting.size > maxPending {
		if !l.awaitLocked() {
			l.lost++
			return false
		}
	}
	if len(l.waiting.lines) == 0 {
		l.soon.Reset(linger)
	}
	return true
}

// awaitLocked waits until the lines that wait have been taken to be written. It reports false if they are
// not. The caller holds mu.
func (l *Log) awaitLocked() bool {
	emptied := l.emptied
	l.mu.Unlock()
	defer l.mu.Lock()
	late := time.NewTimer(stuck)
	defer late.Stop()
	if l.trouble.Load() != nil {
		return false
	}
	select {
	case <-emptied:
		return true
	case <-l.ended:
	case <-late.C:
	}
	return false
}

// take returns the lines that wait.
func (l *Log) take() batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := l.waiting
	l.waiting, l.used = l.used, batch{}
	close(l.emptied)
	l.emptied = make(chan struct{})
	return taken
}
