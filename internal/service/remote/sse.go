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

// event is one of a stream of server-sent events.
type event struct {
	name string // of its kind; "" for a message
	id   string // "" if it has none
	data []byte // its reader's to keep
}

// errTooLarge is in the chain when an event, or an answer, is larger than a
// message may be. What follows on it cannot be found.
var errTooLarge = errors.New("over max_message")

// eventReader reads server-sent events of a bounded size, as HTML §9.2.6 has them.
type eventReader struct {
	r   *bufio.Reader
	max int
	// grow is called once for each event that becomes larger than a step, before
	// more of it is read. It may wait.
	grow func(step int) error
	over <-chan struct{} // nobody waits for more

	retry  time.Duration // what the server asked for last; 0 if it did not
	lastID string        // of the last event with one

	begun  bool // past the place of a byte order mark
	skipLF bool // the last line ended with CR
	grown  int  // the steps that the event under way is larger than
	line   []byte

	idle pace.Pace // of lines that are no data
}

const (
	// small is up to what size a message costs nothing, and large up to what size little.
	small = 64 << 10
	large = 256 << 10
	// maxEventID bounds an id, which becomes a header.
	maxEventID = 1 << 10
	// maxEventName bounds what is kept of the name of an event's kind.
	maxEventName = 64
	// maxRetry bounds what a server may ask for.
	maxRetry = time.Minute
	// fields is what the name of a field may add to the length of a line.
	fields = len("data: ")
)

// steps are the sizes beyond which a message has to ask for more.
var steps = [...]int{small, large}

func newEventReader(r io.Reader, max int, over <-chan struct{}, grow func(step int) error) *eventReader {
	return &eventReader{r: bufio.NewReader(r), max: max, over: over, grow: grow}
}

// next returns the next event that has data. At the end it returns io.EOF, and
// drops an event that is not complete. After it has returned an event, the reader holds
// no memory for that: its caller may give back the share that grow took.
func (e *eventReader) next() (event, error) {
	var ev event
	var data []byte
	has := false // data, be it empty
	e.grown = 0
	for {
		line, err := e.readLine(len(data))
		if err != nil {
			return event{}, err
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		if string(field) != "data" {
			e.idle.Wait(e.over, 1, len(line))
		}
		if len(line) == 0 {
			if has && len(data) > 0 {
				ev.data, e.line = data, nil
				return ev, nil
			}
			ev, has = event{}, false // one without data says only what was noted already
			continue
		}
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			if !has {
				data = value
				e.line = nil // it is the event's now
			} else {
				data = append(append(data, '\n'), value...)
			}
			has = true
		case "event":
			ev.name = string(value[:min(len(value), maxEventName)]) // what is longer is no name that matters
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

// isHeader reports whether an id can be sent back in a header.
func isHeader(id []byte) bool {
	for _, c := range id {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return len(id) > 0 && len(id) <= maxEventID
}

// readLine returns the next line without its end, which is LF, CR or both. The
// line is valid until the next call. had is the size of the event so far.
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
				_, _ = e.r.Discard(1) // it is there
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
		for ; e.grown < len(steps) && had+len(e.line)+len(part) > steps[e.grown]; e.grown++ {
			if err := e.grow(e.grown); err != nil {
				return nil, err
			}
		}
		e.line = append(e.line, part...)
		if end < 0 {
			_, _ = e.r.Discard(len(part)) // as above
			continue
		}
		e.skipLF = buf[end] == '\r'
		_, _ = e.r.Discard(end + 1) // as above
		if !e.begun {
			e.begun = true
			e.line = bytes.TrimPrefix(e.line, []byte("\xef\xbb\xbf"))
		}
		return e.line, nil
	}
}
