package stdio

import (
	"encoding/json"
	"io"
	"runtime"
	"slices"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// answers are the answers that wait to be written to stdout. Answers that wait at the same time are
// written together, since writing a short line costs more than making it.
type answers struct {
	unwritten
	writing bool   // a goroutine is writing them
	spare   []byte // a buffer for the next ones; nil if it is in use
}

// unwritten is what is written at one time.
type unwritten struct {
	chunks   [][]byte // whole lines, in order
	rest     []byte   // what is free behind the part that was copied last
	count    int      // of lines
	size     int      // in bytes
	releases []func() // give back the room of long answers
}

// release gives back the room. It is called when everything is written, or nothing more will be.
func (u *unwritten) release() {
	for _, release := range u.releases {
		release()
	}
}

const (
	longPart    = 16 << 10 // bytes; a part of this size or more is not copied
	longAlone   = 32 << 10 // the same where nothing else is in flight: one short write costs less than two parts
	answersSize = 64 << 10 // bytes; what a pipe holds
	moreSize    = 4 << 10  // bytes of a buffer after one that is full
	longWatch   = 64       // how many writes the goroutine of a call makes for others

	// Nothing more is read while so many bytes of answers wait, or while any wait and so many
	// requests have no answer.
	mostUnread     = 16 << 20
	mostUnanswered = 1024
)

// add adds an answer, as a line. Parts of long bytes or more are not copied. release, if not nil,
// is called when the answer has been written.
func (a *answers) add(message wire.Parts, long int, release func()) {
	if release != nil {
		a.releases = append(a.releases, release)
	}
	a.count++
	a.size += message.Size()
	for _, part := range message {
		a.addPart(part, long)
	}
	a.addPart([]byte("\n"), long)
}

func (a *answers) addPart(part []byte, long int) {
	if len(part) >= long {
		a.chunks = append(a.chunks, slices.Clip(part))
		return
	}
	last := len(a.chunks) - 1
	if last < 0 || cap(a.chunks[last])-len(a.chunks[last]) < len(part) {
		a.chunks = append(a.chunks, a.room(len(part)))
		last++
	}
	chunk := append(a.chunks[last], part...)
	a.chunks[last], a.rest = chunk, chunk[len(chunk):]
}

// room returns an empty buffer for size bytes or more.
func (a *answers) room(size int) []byte {
	buffer := a.rest
	if cap(buffer) < size {
		buffer, a.spare = a.spare[:0], nil
	}
	switch {
	case cap(buffer) >= size:
		return buffer
	case len(a.chunks) == 0:
		return make([]byte, 0, answersSize)
	}
	return make([]byte, 0, max(moreSize, size))
}

// take returns what waits to be written.
func (a *answers) take() unwritten {
	next := a.unwritten
	a.unwritten = unwritten{}
	a.writing = next.count > 0
	return next
}

// keep keeps one of the written buffers for later.
func (a *answers) keep(written [][]byte) {
	for _, chunk := range written {
		if a.spare == nil && cap(chunk) == answersSize {
			a.spare = chunk
		}
	}
}

// answer ends a request with an answer; nil for none. release is called when the answer has been
// written, or will not be. When answer returns, the answer has been written, or waits for the others
// of its batch, or another goroutine writes it.
func (c *Conn) answer(id json.RawMessage, message wire.Parts, release func()) {
	if message.Size() <= turns.Little {
		release() // the rest of the answer is not counted
		release = nil
	}
	c.mu.Lock()
	key := wire.IDKey(id)
	p := c.awaiting[key]
	delete(c.awaiting, key) // first, since the client may use the id again at once
	if p.open {
		c.unanswered++
	}
	switch {
	case p.in != nil:
		message, release = p.in.add(message, release)
	case p.account != nil: // an answer that waits takes room
		p.account.Worked()
		release = both(release, p.account.End)
	}
	switch {
	case message == nil:
		c.unanswered--
		c.endIfAnsweredLocked()
		c.mu.Unlock()
		if release != nil {
			release()
		}
		return
	case c.out == nil:
		c.mu.Unlock()
		c.answerNow(message, release)
		return
	}
	first, alone := !c.soon.writing, len(c.awaiting) == 0
	long := longPart
	if alone {
		long = longAlone
	}
	c.soon.add(message, long, release)
	c.soon.writing = true
	c.mu.Unlock()
	if !first {
		return
	}
	if p.Request != nil && p.Method == wire.MethodInitialize { // answered by the goroutine that reads
		c.workers.run(c.ctx, c.watchAnswers)
		return
	}
	if !alone {
		runtime.Gosched() // others may be about to add theirs
	}
	c.watchAnswers()
}

// both returns a function that calls two. The first may be nil.
func both(release, also func()) func() {
	if release == nil {
		return also
	}
	return func() { release(); also() }
}

// answerNow writes an answer.
func (c *Conn) answerNow(message wire.Parts, release func()) {
	if release != nil {
		defer release()
	}
	if err := c.deliver(message); err != nil {
		c.log.Debug("answer a request", "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unanswered--
	c.endIfAnsweredLocked()
}

// watchAnswers writes what waits, until nothing does. After longWatch writes it leaves the rest to
// another goroutine, so that the call in whose goroutine it runs can end.
func (c *Conn) watchAnswers() {
	for range longWatch {
		if !c.writeAnswers() {
			return
		}
	}
	c.workers.run(c.ctx, c.watchAnswers)
}

// writeAnswers writes what waits, and reports whether more may wait.
func (c *Conn) writeAnswers() bool {
	ended := false
	select {
	case c.writing <- struct{}{}:
	case <-c.ctx.Done():
		ended = true
	}
	c.mu.Lock()
	next := c.soon.take()
	c.mu.Unlock()
	select {
	case c.taken <- struct{}{}:
	default:
	}
	defer next.release()
	if ended {
		return next.count > 0
	}
	err := writeAll(c.out, next.chunks)
	<-c.writing
	if err != nil {
		c.broken(err)
		return true // the next round drops what waits
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soon.keep(next.chunks)
	c.unanswered -= next.count
	c.endIfAnsweredLocked()
	return next.count > 0
}

// awaitReader waits while the client sends requests but does not read its answers.
func (c *Conn) awaitReader() {
	for c.unread() {
		select {
		case <-c.taken:
		case <-c.ctx.Done():
			return
		}
	}
}

// unread reports whether too many bytes wait to be written, or too many requests for an answer.
func (c *Conn) unread() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.soon.size > mostUnread || c.soon.size > 0 && c.unanswered > mostUnanswered
}

func writeAll(out io.Writer, chunks [][]byte) error {
	for _, chunk := range chunks {
		if _, err := out.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}
