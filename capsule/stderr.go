package capsule

import (
	"bytes"
	"context"

	"github.com/orla-project/orla/internal/observe/history"
	"github.com/orla-project/orla/internal/observe/tail"
)

// logStderr logs one line of stderr without its secrets, and keeps it among the last lines
// of its process (SPEC D5).
func (c *Capsule) logStderr(pid int, last *tail.Buffer, line []byte, dropped int) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if dropped > 0 {
		line = append(bytes.Clone(line), tail.CutMark(dropped)...)
	}
	line = c.clean(line)
	last.Append(line)
	ctx := context.Background() // a line is not part of a call
	if !c.logged.Allow(len(line), c.reportStderr) {
		ctx = history.Only(ctx)
	}
	c.log.InfoContext(ctx, "stderr", "tool", c.tool.Name, "stream", "stderr", "pid", pid, "text", string(line))
}

// reportStderr logs how much of stderr was left out of the log, if anything was.
func (c *Capsule) reportStderr() {
	if lines, bytes := c.logged.Left(); lines > 0 {
		c.log.Warn("a capsule printed too much on stderr; these lines are not in the log", "tool", c.tool.Name, "lines", lines, "bytes", bytes)
	}
}

// maxNoise is how many lines are logged in a minute about the stray output of a capsule.
const maxNoise = 10
