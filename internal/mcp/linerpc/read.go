package linerpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// trailingID is where the id of an answer may stand when it is not at the beginning, and the rest is out of reach.
var trailingID = regexp.MustCompile(`,\s*"id"\s*:\s*(\d+)\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)

// tooLong fails the call that an over-long line answered.
func (c *Conn) tooLong(head, tail []byte) {
	c.Noise(head, fmt.Sprintf("a line of over %d bytes", c.max))
	if !bytes.HasPrefix(bytes.TrimSpace(head), []byte("{")) {
		return // no answer, however it goes on
	}
	h := rawjson.ReadHead(head)
	if h.Method != nil {
		return // the process's own request or notification, whose method stands before its params: its id is none of ours
	}
	why := fmt.Errorf("%w: over %d bytes", rpc.ErrTooLong, c.max)
	text := string(h.ID)
	if found := trailingID.FindSubmatch(tail); found != nil && h.ID == nil {
		text = string(found[1])
	}
	if text == "" {
		c.FailOnly(why)
		return
	}
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		c.Fail(id, why)
	}
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
	start, end int                    // what is read and was not returned
	seen       int                    // how much of that holds no end of line
	skips      func(line []byte) bool // if not nil, asked whether a line is dropped
	dropped    func(n int)            // if not nil, told of the bytes of lines that are too long; it may wait
	large      int                    // length of the last line that was not copied: the next may be as long
	usual      int                    // about how long lines are; a buffer for longer ones is not kept
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
			if n := l.seen + i; !l.skip(n) {
				return l.take(n), nil
			}
			continue
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

// skip drops the first n bytes, a line, if skips says so. The buffer stays: a line of the same kind may follow.
func (l *lineReader) skip(n int) bool {
	if l.skips == nil || n > l.max || !l.skips(l.buf[l.start:l.start+n]) {
		return false
	}
	l.start, l.seen = l.start+n+1, 0
	l.usual = growStep // many lines come, and are read together
	if l.start == l.end {
		l.start, l.end = 0, 0
	}
	return true
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
