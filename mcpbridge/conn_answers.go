package mcpbridge

import (
	"io"
	"runtime"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// answers are those of plain calls that wait to be written on stdio. What came
// together goes out together: to write a short line costs more than to make it.
type answers struct {
	chunks  [][]byte // whole lines, in order
	count   int      // of them
	writing bool     // a goroutine is at them
	spare   []byte   // the buffer to begin with; nil if it is in use
}

const (
	longPart    = 16 << 10 // bytes of a part from which on it is not copied
	answersSize = 64 << 10 // what a pipe holds
	moreSize    = 4 << 10  // of a buffer behind what was not copied
)

// add adds an answer, as a line.
func (a *answers) add(message parts) {
	a.count++
	for _, part := range message {
		a.addPart(part)
	}
	a.addPart([]byte("\n"))
}

func (a *answers) addPart(part []byte) {
	if len(part) >= longPart {
		a.chunks = append(a.chunks, slices.Clip(part))
		return
	}
	last := len(a.chunks) - 1
	if last < 0 || cap(a.chunks[last])-len(a.chunks[last]) < len(part) {
		buffer := a.spare[:0]
		switch a.spare = nil; {
		case cap(buffer) > 0: // nothing was copied since it was written
		case last < 0:
			buffer = make([]byte, 0, answersSize)
		default:
			buffer = make([]byte, 0, max(moreSize, len(part)))
		}
		a.chunks = append(a.chunks, buffer)
		last++
	}
	a.chunks[last] = append(a.chunks[last], part...)
}

// take returns what is to be written, and how many answers that is.
func (a *answers) take() (chunks [][]byte, count int) {
	chunks, count = a.chunks, a.count
	a.chunks, a.count = nil, 0
	a.writing = count > 0
	return chunks, count
}

// keep keeps one of the buffers that were written.
func (a *answers) keep(written [][]byte) {
	for _, chunk := range written {
		if a.spare == nil && cap(chunk) == answersSize {
			a.spare = chunk
		}
	}
}

// answerSoon ends a plain call with its answer; nil for none. When it returns,
// the answer has been written, or a goroutine is about to.
func (c *conn) answerSoon(id jsonrpc.ID, message parts) {
	c.mu.Lock()
	c.awaiting[id].held.end()
	delete(c.awaiting, id) // first, since the client may use the id again at once
	if message == nil {
		c.unanswered--
		c.settleLocked()
		c.mu.Unlock()
		return
	}
	c.soon.add(message)
	first, alone := !c.soon.writing, len(c.awaiting) == 0
	c.soon.writing = true
	c.mu.Unlock()
	if !first {
		return
	}
	if !alone {
		runtime.Gosched() // the others may be as far
	}
	for c.writeAnswers() {
	}
}

// writeAnswers writes what waits, and reports whether more may have come meanwhile.
func (c *conn) writeAnswers() bool {
	select {
	case c.writing <- struct{}{}:
	case <-c.done:
		return false
	}
	c.mu.Lock()
	chunks, count := c.soon.take()
	c.mu.Unlock()
	err := writeAll(c.out, chunks)
	<-c.writing
	if err != nil {
		c.broken(err)
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soon.keep(chunks)
	c.unanswered -= count
	c.settleLocked()
	return count > 0
}

func writeAll(out io.Writer, chunks [][]byte) error {
	for _, chunk := range chunks {
		if _, err := out.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}
