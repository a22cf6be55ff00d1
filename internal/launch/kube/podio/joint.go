package podio

import (
	"bytes"
	"slices"
	"time"
)

const (
	// settle is how long a line of the log may be missing on its connection before it is taken from the log.
	settle = 500 * time.Millisecond
	// hold is how long a line of a connection waits for the log, which has what came before it.
	hold = 2 * time.Second
	// quiet is how long nothing was missing when a connection surely carries what comes.
	quiet = 10 * time.Second
)

// side is stdout or stderr.
type side int

const (
	out side = iota
	text
)

// joint puts together what the log and the connections have of the lines of a process, where a connection begins: a
// connection lacks the lines from before it, and the log does not say from which stream its lines are. It ends when
// both connections carry all that comes.
//
// It takes a line that is a JSON-RPC message for one of stdout, and any other for one of stderr. Lines of a
// connection are on their side whatever they are.
type joint struct {
	deliver func(s side, line []byte) // without its newline; nil for one that the log has not whole

	began   time.Time
	missing []entry     // lines of the log that no connection has shown
	held    [2][]entry  // lines of a connection that the log has not shown
	taken   [2][][]byte // lines that were taken from the log; the connection may still bring them
	passed  [][]byte    // lines of a sure connection that the log may still show, and would be taken for the other side's
	sure    [2]bool     // the connection carries all that comes
	heard   [2]bool     // it has brought a line: its first one may lack its begin
}

// entry is a line, with the time when it came.
type entry struct {
	line []byte
	side side
	at   time.Time
}

// maxPassed bounds joint.passed and joint.taken, in lines.
const maxPassed = 1000

func newJoint(now time.Time, deliver func(side, []byte)) *joint {
	return &joint{began: now, deliver: deliver}
}

// over reports whether nothing has to be put together any more.
func (j *joint) over() bool { return j.sure[out] && j.sure[text] }

// logged takes a line of the log.
func (j *joint) logged(l logLine, now time.Time) {
	line := l.text
	for _, s := range []side{out, text} {
		if h := j.held[s]; len(h) > 0 && same(line, h[0].line, true) {
			h[0].line = line // which is whole
			j.ensure(s)
			return
		}
	}
	if i := slices.IndexFunc(j.passed, func(p []byte) bool { return bytes.Equal(p, line) }); i >= 0 {
		j.passed = slices.Delete(j.passed, i, i+1)
		return
	}
	if !j.sure[l.side] && (line == nil || len(line) > 0) { // a node writes an empty line at the end of a stream
		j.missing = append(j.missing, entry{line, l.side, now})
		for large(j.missing) {
			j.take()
		}
	}
}

// large reports whether lines that wait are too many. They are bounded in bytes by two lines of maxLine.
func large(waiting []entry) bool {
	const most = 1000
	size := 0
	for _, e := range waiting {
		size += len(e.line)
	}
	return len(waiting) > most || len(waiting) > 1 && size > maxLine
}

// take delivers the oldest line that no connection has shown.
func (j *joint) take() {
	e := j.missing[0]
	j.missing = j.missing[1:]
	j.deliver(e.side, e.line)
	j.taken[e.side] = append(j.taken[e.side], e.line)
	if n := len(j.taken[e.side]) - maxPassed; n > 0 {
		j.taken[e.side] = j.taken[e.side][n:]
	}
}

// said takes a line of a connection.
func (j *joint) said(s side, line []byte, now time.Time) {
	first := !j.heard[s]
	j.heard[s] = true
	if i := slices.IndexFunc(j.taken[s], func(t []byte) bool { return same(t, line, first) }); i >= 0 {
		j.taken[s] = j.taken[s][i+1:]
		return
	}
	i := slices.IndexFunc(j.missing, func(e entry) bool { return same(e.line, line, first && !j.sure[s]) })
	switch {
	case j.sure[s]:
		if i >= 0 {
			j.missing = slices.Delete(j.missing, i, i+1)
		} else {
			j.pass(s, line)
		}
		j.deliver(s, line)
	case i >= 0 && len(j.held[s]) == 0:
		e := j.missing[i]
		later := j.missing[i+1:]
		j.missing = j.missing[:i]
		j.ensure(s)
		j.deliver(s, e.line)
		for _, l := range later {
			if l.side != s { // the others come by the connection
				j.missing = append(j.missing, l)
			}
		}
	default:
		j.held[s] = append(j.held[s], entry{line, s, now})
		if large(j.held[s]) {
			j.ensure(s)
		}
	}
}

// ensure makes a side sure: what is missing of it is delivered, and then what was held.
func (j *joint) ensure(s side) {
	if j.sure[s] {
		return
	}
	j.sure[s] = true
	var others []entry
	for _, e := range j.missing {
		if e.side == s {
			j.deliver(s, e.line)
		} else {
			others = append(others, e)
		}
	}
	j.missing = others
	for i, e := range j.held[s] {
		j.deliver(s, e.line)
		if i > 0 {
			j.pass(s, e.line)
		}
	}
	j.held[s], j.taken[s] = nil, nil
}

// pass remembers a line that the log will show, if it looks like one of the other side.
func (j *joint) pass(s side, line []byte) {
	if sideOf(line) != s && len(j.passed) < maxPassed {
		j.passed = append(j.passed, line)
	}
}

// tick does what is due.
func (j *joint) tick(now time.Time) {
	for len(j.missing) > 0 && now.Sub(j.missing[0].at) >= settle {
		j.take()
	}
	for _, s := range []side{out, text} {
		if h := j.held[s]; len(h) > 0 && now.Sub(h[0].at) >= hold || now.Sub(j.began) >= quiet {
			j.ensure(s)
		}
	}
}

// finish delivers the rest: nothing more comes.
func (j *joint) finish() {
	j.ensure(out)
	j.ensure(text)
}

// same reports whether a line of a connection is one of the log. The first one of a connection may lack its begin.
func same(logged, said []byte, first bool) bool {
	return bytes.Equal(logged, said) || first && len(said) > 0 && bytes.HasSuffix(logged, said)
}

// sideOf tells a message from text.
func sideOf(line []byte) side {
	trimmed := bytes.TrimSpace(line)
	if bytes.HasPrefix(trimmed, []byte("{")) && bytes.HasSuffix(trimmed, []byte("}")) && bytes.Contains(trimmed, []byte(`"jsonrpc"`)) {
		return out
	}
	return text
}
