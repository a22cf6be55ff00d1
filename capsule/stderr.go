package capsule

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/history"
	"github.com/orla-project/orla/internal/tail"
)

const (
	// stderrWindow is the time in which a capsule may log stderrLines lines of stderr,
	// of stderrBytes bytes together. The history has those that come after them as well.
	stderrWindow = 10 * time.Second
	stderrLines  = 2000
	stderrBytes  = 1 << 20
)

// stderrLimit counts what a capsule logs of its stderr.
type stderrLimit struct {
	mu           sync.Mutex // guards what follows
	ends         time.Time  // the window
	lines, bytes int        // logged in it
	left         int        // lines that were not, and not yet said
	leftBytes    int
}

// allow reports whether a line of n bytes may be logged. It has report called at the
// end of a window in which one may not.
func (l *stderrLimit) allow(n int, report func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !now.Before(l.ends) {
		l.ends, l.lines, l.bytes = now.Add(stderrWindow), 0, 0
	}
	if l.lines < stderrLines && l.bytes+n <= stderrBytes {
		l.lines++
		l.bytes += n
		return true
	}
	if l.left == 0 {
		time.AfterFunc(l.ends.Sub(now), report)
	}
	l.left++
	l.leftBytes += n
	return false
}

// take returns how much was not logged since the last time.
func (l *stderrLimit) take() (lines, bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, bytes = l.left, l.leftBytes
	l.left, l.leftBytes = 0, 0
	return lines, bytes
}

// logStderr logs one line of stderr as it is, but for secrets, and keeps it (SPEC D5).
func (c *Capsule) logStderr(pid int, line []byte, dropped int) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if dropped > 0 {
		line = append(bytes.Clone(line), tail.CutMark(dropped)...)
	}
	line = c.clean(line)
	c.stderr.Append(line)
	ctx := context.Background() // a line is not part of a call
	if !c.logged.allow(len(line), c.reportStderr) {
		ctx = history.Only(ctx)
	}
	c.log.InfoContext(ctx, "stderr", "tool", c.tool.Name, "stream", "stderr", "pid", pid, "text", string(line))
}

// reportStderr says how much of stderr was not logged, if something was not.
func (c *Capsule) reportStderr() {
	if lines, bytes := c.logged.take(); lines > 0 {
		c.log.Warn("a capsule printed too much on stderr; these lines are not in the log", "tool", c.tool.Name, "lines", lines, "bytes", bytes)
	}
}

// limiter lets a few lines of log pass in each minute, and counts the others.
type limiter struct {
	mu    sync.Mutex // guards the fields that follow
	since time.Time
	shown int
	left  int
}

// allow reports whether a line may be logged, and how many were not since the
// last one that was.
func (l *limiter) allow() (ok bool, left int) {
	const window, most = time.Minute, 10
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= window {
		l.since, l.shown = now, 0
	}
	if l.shown >= most {
		l.left++
		return false, 0
	}
	l.shown++
	left, l.left = l.left, 0
	return true, left
}
