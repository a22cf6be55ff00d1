package linerpc

import (
	"io"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
)

const (
	// breath is how long a pipe is left alone that is sifted, after as much work as atOnce says: to read so many bytes. A
	// read counts as perRead of them more, a line that is left out as perLine, and a message that is taken and answers
	// nothing as perMessage and three times its bytes.
	breath     = time.Millisecond
	atOnce     = 512 << 10
	perRead    = 8 << 10
	perLine    = 128
	perMessage = 4 << 10
	// shownLines is how many lines of each call are taken while a pipe is sifted, if they have shownBytes at most, and
	// shownCalls how many calls are counted.
	shownLines = 16
	shownBytes = 4 << 10
	shownCalls = 1024
	// tellEvery is how often it is told at most how many lines were left out.
	tellEvery = time.Minute
)

// sifter reads what a process says. What nobody has asked for is read at a pace (internal/call/pace): beyond it the
// process waits. While a call of another caller would wait too, the process is sifted in place of that: it is read on,
// and most of the lines that may be left out are (SPEC N2).
type sifter struct {
	conn *Conn
	from io.Reader
	pace pace.Pace

	until   time.Time     // it sifts so long; zero while it does not
	work    int           // what may be done before the next breath
	shown   map[int64]int // how many lines of each call were taken since it began
	leftOut int           // lines of which nobody was told
	told    time.Time     // when somebody was told last
}

func (s *sifter) sifts() bool { return !s.until.IsZero() }

// Read implements io.Reader.
func (s *sifter) Read(p []byte) (int, error) {
	if s.sifts() && s.work <= 0 {
		s.breathe()
	}
	n, err := s.from.Read(p)
	if s.sifts() {
		s.work -= n + perRead
	}
	return n, err
}

// unasked counts what nobody has asked for.
func (s *sifter) unasked(lines, bytes int) {
	if s.sifts() {
		s.work -= lines*perMessage + 3*bytes
		return
	}
	left := s.pace.Count(lines, bytes)
	if left == 0 {
		return
	}
	if left = s.conn.Rest(left); left > 0 {
		s.until, s.work = time.Now().Add(left), atOnce
	}
}

// breathe leaves the process alone, for a moment, or for as long as no call of another caller would wait.
func (s *sifter) breathe() {
	left := time.Until(s.until)
	if left > 0 {
		left = s.conn.Rest(left)
	}
	if left <= 0 {
		s.until = time.Time{}
		clear(s.shown)
		s.tell(tellEvery)
		return
	}
	times := 1 - s.work/atOnce
	s.work += times * atOnce
	select {
	case <-time.After(time.Duration(times) * breath):
	case <-s.conn.Over():
	}
}

// leavesOut reports whether a line is left out.
func (s *sifter) leavesOut(line []byte) bool {
	if !s.sifts() || s.conn.spare == nil {
		return false
	}
	call, spare := s.conn.spare(line)
	if !spare {
		return false
	}
	if n, counted := s.shown[call]; call != 0 && len(line) <= shownBytes && n < shownLines && (counted || len(s.shown) < shownCalls) {
		if s.shown == nil {
			s.shown = map[int64]int{}
		}
		s.shown[call]++
		return false
	}
	s.work -= perLine
	s.leftOut++
	return true
}

// tell tells how many lines were left out, unless it has done so within a time.
func (s *sifter) tell(within time.Duration) {
	if s.leftOut == 0 || s.conn.left == nil || time.Since(s.told) < within {
		return
	}
	s.conn.left(s.leftOut)
	s.leftOut, s.told = 0, time.Now()
}
