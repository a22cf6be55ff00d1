package remote

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
)

// event is a server-sent event.
type event struct {
	name string // of its kind; "" for a message
	id   string // "" if it has none
	data []byte // owned by the caller of next
}

// errTooLarge is in the chain if an event or an answer exceeds max_message. The rest of its stream
// cannot be read.
var errTooLarge = errors.New("over max_message")

// eventReader reads server-sent events of a bounded size (HTML §9.2.6).
type eventReader struct {
	r   *bufio.Reader
	max int
	// grow is called when an event becomes larger than small << step, before more of it is read, once for
	// each step. It may block.
	grow func(step int) error
	over <-chan struct{} // closed when no more events are needed

	retry  time.Duration // the last reconnection time from the server; 0 for none
	lastID string        // of the last event that had an id

	begun  bool // past a possible byte order mark
	skipLF bool // the last line ended with CR
	grown  int  // number of steps that the current event exceeds
	line   []byte

	// idle bounds the rate of everything that is not a message: other events, lines without
	// data, and all lines of data but the first of an event. All streams of a server share it.
	idle *pace.Shared
	// few is not counted yet: nothing is counted of a message that has few lines.
	few struct{ lines, bytes int }
}

const (
	// maxEventID bounds an event id, which is sent back in a header.
	maxEventID = 1 << 10
	// maxEventName bounds how much of an event's type is kept.
	maxEventName = 64
	// maxRetry is the longest reconnection time that a server may set.
	maxRetry = time.Minute
	// maxFew bounds lines and their bytes that are not counted until it is known whether they are those of a
	// message, which may have a type, an id and a time, and ends with an empty line.
	maxFew, maxFewBytes = 4, 2 << 10
	// fields is the largest number of bytes that a field name adds to a line.
	fields = len("data: ")
)

func newEventReader(r io.Reader, max int, over <-chan struct{}, idle *pace.Shared, grow func(step int) error) *eventReader {
	return &eventReader{r: bufio.NewReader(r), max: max, over: over, idle: idle, grow: grow}
}

// skip counts an event that is not a message, and waits if there were too many. bytes is
// the size of its data.
func (e *eventReader) skip(bytes int) {
	const piece = pace.MaxBytes / 8 // one Wait is for at most one second's bytes
	e.pay()
	for ; bytes > 0; bytes -= piece {
		e.idle.Wait(e.over, 0, min(bytes, piece))
	}
}

// passed says that the last event is a message.
func (e *eventReader) passed() { e.few.lines, e.few.bytes = 0, 0 }

// count counts a line that is not a message, at the latest when there are more than few.
func (e *eventReader) count(bytes int) {
	e.few.lines++
	e.few.bytes += bytes
	if e.few.lines > maxFew || e.few.bytes > maxFewBytes {
		e.pay()
	}
}

// pay counts the lines that are not counted yet, and waits if there were too many.
func (e *eventReader) pay() {
	few := e.few
	e.passed()
	e.idle.Wait(e.over, few.lines, few.bytes)
}

// next returns the next event that has data. At the end of the stream it returns io.EOF, and drops
// an incomplete event. The reader keeps no memory of a returned event, so its caller may release the
// share that grow took.
func (e *eventReader) next() (event, error) {
	var ev event
	var data []byte
	has := false // there was a data field, maybe an empty one
	e.grown = 0
	for {
		line, err := e.readLine(len(data))
		if err != nil {
			return event{}, err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case string(field) != "data":
			e.count(len(line))
		case has:
			e.count(0)
		}
		if len(line) == 0 {
			if has && len(data) > 0 {
				ev.data, e.line = data, nil
				return ev, nil
			}
			ev, has = event{}, false // an event without data is ignored
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if !has {
				data = value
				e.line = nil // the event owns it now
			} else {
				data = append(append(data, '\n'), value...)
			}
			has = true
		case "event":
			ev.name = string(value[:min(len(value), maxEventName)]) // no known name is longer
		case "id":
			if isHeader(value) {
				e.lastID = string(value)
				ev.id = e.lastID
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 32); err == nil {
				e.retry = min(time.Duration(ms)*time.Millisecond, maxRetry)
			}
		}
	}
}

// isHeader reports whether an id is valid in a header.
func isHeader(id []byte) bool {
	for _, c := range id {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(id) > 0 && len(id) <= maxEventID
}

// readLine returns the next line without its end: LF, CR or both. The line is valid until the next
// call. had is the size of the event so far.
func (e *eventReader) readLine(had int) ([]byte, error) {
	e.line = e.line[:0]
	for {
		if _, err := e.r.Peek(1); err != nil {
			return nil, err
		}
		buf, _ := e.r.Peek(e.r.Buffered())
		if e.skipLF {
			e.skipLF = false
			if buf[0] == '\n' {
				_, _ = e.r.Discard(1) // these bytes are buffered
				continue
			}
		}
		end := bytes.IndexAny(buf, "\r\n")
		part := buf
		if end >= 0 {
			part = buf[:end]
		}
		if had+len(e.line)+len(part) > e.max+fields {
			return nil, fmt.Errorf("%w (%d bytes)", errTooLarge, e.max)
		}
		for ; had+len(e.line)+len(part) > small<<e.grown; e.grown++ {
			if err := e.grow(e.grown); err != nil {
				return nil, err
			}
		}
		e.line = append(e.line, part...)
		if end < 0 {
			_, _ = e.r.Discard(len(part)) // these bytes are buffered
			continue
		}
		e.skipLF = buf[end] == '\r'
		_, _ = e.r.Discard(end + 1) // these bytes are buffered
		if !e.begun {
			e.begun = true
			e.line = bytes.TrimPrefix(e.line, []byte("\xef\xbb\xbf"))
		}
		return e.line, nil
	}
}
