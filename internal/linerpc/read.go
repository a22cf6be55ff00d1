package linerpc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/turns"
)

// take hands one line to whom it concerns.
func (c *Conn) take(line []byte) {
	line = c.clean(line)
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")))
	c.unasked++ // unless it turns out to be an answer
	if len(line) == 0 {
		return
	}
	if line[0] != '{' && line[0] != '[' {
		c.opts.Handler.Noise(shortened(line), "no JSON-RPC message")
		return
	}
	valid, ascii := rawjson.Check(line)
	switch {
	case !valid:
		c.opts.Handler.Noise(shortened(line), "no valid JSON")
		return
	case !ascii && !utf8.Valid(line): // what goes on to clients must be text
		line = bytes.ToValidUTF8(line, []byte("\uFFFD"))
	}
	switch line[0] {
	case '{':
		c.takeMessage(line)
	default: // a batch, which older peers may answer with
		rawjson.Elements(line, func(m json.RawMessage) bool {
			c.unasked++
			if m[0] == '{' {
				c.takeMessage(m)
			} else {
				c.opts.Handler.Noise(shortened(m), "no JSON-RPC message")
			}
			return true
		})
	}
}

func (c *Conn) clean(line []byte) []byte {
	if c.opts.Clean == nil {
		return line
	}
	return c.opts.Clean(line)
}

// maxID bounds the id of a request in bytes: the answer repeats it. maxMethod is how
// much is taken of the name of a method, which the log repeats.
const maxID, maxMethod = 256, 256

func (c *Conn) takeMessage(raw []byte) {
	m, plain := rawjson.ReadMessage(raw)
	method := rawjson.String(m.Method)
	method = method[:min(len(method), maxMethod)] // no method that Orla knows is as long
	switch {
	case !plain || m.Method != nil && method == "":
		c.opts.Handler.Noise(shortened(raw), "no JSON-RPC message")
	case rawjson.String(m.Version) != "2.0": // a log line that looks like one must not answer a call
		c.opts.Handler.Noise(shortened(raw), `no JSON-RPC message: it has no "jsonrpc":"2.0"`)
	case method != "" && m.ID == nil:
		c.opts.Handler.Notified(method, m.Params)
	case method != "" && len(m.ID) > maxID:
		c.opts.Handler.Noise(shortened(raw), fmt.Sprintf("a request whose id is over %d bytes", maxID))
	case method != "":
		c.opts.Handler.Asked(m.ID, method, m.Params)
	case m.ID != nil && (m.Result != nil || m.Error != nil):
		c.takeAnswer(m)
	default:
		c.opts.Handler.Noise(shortened(raw), "no JSON-RPC message: it has neither a method nor a result")
	}
}

func (c *Conn) takeAnswer(m rawjson.Message) {
	e := Event{Result: m.Result}
	if m.Error != nil && !bytes.Equal(m.Error, []byte("null")) {
		e = Event{Err: errorOf(m.Error)}
	}
	id, err := strconv.ParseInt(string(m.ID), 10, 64)
	if err == nil && len(m.Result) > turns.Little {
		e.inHand = c.makeRoom(id, int64(len(m.Result)))
	}
	if err != nil || !c.settle(id, e) {
		c.opts.Handler.Unclaimed(m.ID)
		return
	}
	c.unasked--
}

// makeRoom returns how many bytes of an answer are in hand until its call has found
// room for them: answers of other calls are not to wait for it. If too much is in
// hand, it waits itself, and the process, which is not read from meanwhile, does too.
func (c *Conn) makeRoom(id, size int64) int64 {
	c.mu.Lock()
	p := c.pending[id]
	c.mu.Unlock()
	if p == nil || p.held == nil {
		return 0
	}
	if p.held.Later(size) {
		return size
	}
	_ = p.held.Need(p.ctx, size) // a call that is over takes no answer
	return 0
}

// errorOf reads the error of an answer. One that is none of JSON-RPC's is still
// an error.
func errorOf(raw json.RawMessage) error {
	var wire jsonrpc.Error
	if err := json.Unmarshal(raw, &wire); err != nil || wire.Message == "" && wire.Code == 0 {
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: string(shortened(raw))}
	}
	return &wire
}

// Where the id of an answer stands when the rest of it is out of reach.
var (
	leadingID = regexp.MustCompile(`^\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"id"\s*:\s*(\d+)\s*,`)
	// What is no answer has a method, which stands before its params as a rule.
	leadingMethod = regexp.MustCompile(`^\s*\{(?:\s*"(?:jsonrpc|id)"\s*:\s*(?:"[^"]*"|\d+)\s*,)*\s*"method"\s*:`)
	trailingID    = regexp.MustCompile(`,\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
)

// tooLong fails the call that an over-long line answered.
func (c *Conn) tooLong(head, tail []byte) {
	c.opts.Handler.Noise(shortened(c.clean(head)), fmt.Sprintf("a line of over %d bytes", c.opts.MaxMessage))
	if !bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")) {
		return // no answer, however it goes on
	}
	if leadingMethod.Match(head) {
		return // the process's own request or notification: its id is none of ours
	}
	found := leadingID.FindSubmatch(head)
	if found == nil {
		found = trailingID.FindSubmatch(tail)
	}
	why := Event{Err: fmt.Errorf("%w: over %d bytes", ErrTooLong, c.opts.MaxMessage)}
	if found != nil {
		if id, err := strconv.ParseInt(string(found[1]), 10, 64); err == nil {
			c.settle(id, why)
		}
		return
	}
	c.mu.Lock()
	var only int64
	if len(c.pending) == 1 {
		for only = range c.pending {
		}
	}
	c.mu.Unlock()
	c.settle(only, why)
}

// shortened cuts what is quoted in a log or an error.
func shortened(line []byte) []byte {
	const enough = 4 << 10
	if len(line) <= enough {
		return line
	}
	return append(bytes.Clone(line[:enough]), "…"...)
}

// line is one line of a stream, without its end.
type line struct {
	data []byte // owned by whoever got it; its head when it is cut
	cut  bool   // it was longer than allowed
	tail []byte // the last bytes of a line that was cut
}

// lineReader reads lines of a bounded length. Lines are cut out of one buffer:
// short ones by copying, long ones by giving the buffer away.
type lineReader struct {
	r   io.Reader
	max int

	buf        []byte
	start, end int         // what is read and was not returned
	seen       int         // how much of that holds no end of line
	dropped    func(n int) // if not nil, told of the bytes of lines that are too long; it may wait
	large      int         // length of the last line that was not copied: the next may be as long
	usual      int         // about how long lines are; a buffer for longer ones is not kept
}

const (
	bufSize  = 4 << 10  // of a buffer for lines that are short
	bigLine  = 32 << 10 // from here on a line is not copied
	cutHead  = 4 << 10
	cutTail  = 256
	growStep = 64 << 10 // what a pipe holds
	forget   = 16       // how slowly usual follows when lines get shorter
)

// next returns the next line. At the end it returns what is left, with an error.
func (l *lineReader) next() (line, error) {
	for {
		if i := bytes.IndexByte(l.buf[l.start+l.seen:l.end], '\n'); i >= 0 {
			return l.take(l.seen + i), nil
		}
		l.seen = l.end - l.start
		if l.seen > l.max {
			return l.discard()
		}
		if err := l.fill(); err != nil {
			rest := line{data: bytes.Clone(l.buf[l.start:l.end])}
			l.start, l.end, l.seen = 0, 0, 0
			return rest, err
		}
	}
}

// take returns the first n bytes as a line.
func (l *lineReader) take(n int) line {
	data := l.buf[l.start : l.start+n : l.start+n]
	rest := l.buf[l.start+n+1 : l.end]
	l.seen = 0
	l.usual = max(min(n, growStep), l.usual-l.usual/forget-1)
	if n > l.max {
		l.start += n + 1
		return line{cut: true, data: bytes.Clone(data[:min(n, cutHead)]), tail: bytes.Clone(data[n-min(n, cutTail):])}
	}
	if n < bigLine {
		data = bytes.Clone(data)
		l.start += n + 1
		if l.start == l.end {
			l.start, l.end = 0, 0
			if len(l.buf) > growStep || len(l.buf) > bufSize && l.usual < bufSize/2 {
				l.buf = nil // one long line must not be paid for for ever
			}
		}
		return line{data: data}
	}
	l.large = n
	l.buf = nil
	if len(rest) > 0 {
		l.buf = make([]byte, max(growStep, len(rest)))
		copy(l.buf, rest)
	}
	l.start, l.end = 0, len(rest)
	return line{data: data}
}

// fill reads once more, with room made as it is needed.
func (l *lineReader) fill() error {
	if l.end == len(l.buf) {
		used := l.end - l.start
		if l.start > 0 && used <= len(l.buf)/2 {
			copy(l.buf, l.buf[l.start:l.end])
		} else {
			grown := make([]byte, l.roomFor(used))
			copy(grown, l.buf[l.start:l.end])
			l.buf = grown
		}
		l.start, l.end = 0, used
	}
	n, err := l.r.Read(l.buf[l.end:])
	l.end += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = errNoProgress
	}
	return err
}

// roomFor returns how large the buffer is to be that follows one with so many
// bytes of a line.
func (l *lineReader) roomFor(used int) int {
	switch {
	case used >= bigLine:
		return max(2*len(l.buf), min(l.large, l.max)+growStep)
	case used >= bufSize, l.usual >= bufSize:
		return growStep
	}
	return max(bufSize, 2*used)
}

var errNoProgress = errors.New("a read gave nothing")

// discard drops a line that is too long, to its end.
func (l *lineReader) discard() (line, error) {
	cut := line{cut: true, data: bytes.Clone(l.buf[l.start : l.start+min(cutHead, l.end-l.start)])}
	keep := func(part []byte) {
		cut.tail = append(cut.tail, part[max(0, len(part)-cutTail):]...)
		cut.tail = cut.tail[max(0, len(cut.tail)-cutTail):]
	}
	keep(l.buf[l.start:l.end])
	l.buf = make([]byte, growStep)
	l.start, l.end, l.seen = 0, 0, 0
	for {
		n, err := l.r.Read(l.buf)
		if l.dropped != nil {
			l.dropped(n)
		}
		part := l.buf[:n]
		if i := bytes.IndexByte(part, '\n'); i >= 0 {
			keep(part[:i])
			l.start, l.end = i+1, n
			return cut, nil
		}
		keep(part)
		if err != nil {
			return cut, err
		}
	}
}
