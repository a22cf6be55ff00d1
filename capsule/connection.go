package capsule

import (
	"context"
	"time"

	"github.com/orla-project/orla/capsule/clients"
	"github.com/orla-project/orla/capsule/handover"
	"github.com/orla-project/orla/capsule/stdio"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// Connection is what a capsule speaks with: a process and its pipes (capsule/stdio), or a
// session with a remote server (internal/service/remote). The calls on it are those of an
// rpc.Conn (docs/decisions/0035).
type Connection interface {
	// Open returns the calls on it. It is called once, before any other method.
	Open(opts rpc.Options) *rpc.Conn
	// Listen begins to read. It is called once, after Open. logged is called for each line
	// of stderr, with the number of bytes that were dropped from it. panicked is called with
	// a panic while reading.
	Listen(logged func(line []byte, dropped int), panicked func(p any))
	// Exited is closed when the process, or the session, has ended.
	Exited() <-chan struct{}
	// ExitText says how it ended, as the rest of a sentence that begins with "it". It may be
	// called only after Exited.
	ExitText() string
	// Heard is closed when everything that was sent has been read, and nothing more can come.
	Heard() <-chan struct{}
	// AwaitLast waits briefly, after Exited, until what was sent before has been read.
	AwaitLast()
	// Finish ends it in order, within patience. Nobody waits for answers any more. It
	// returns at once.
	Finish(patience time.Duration)
	// Kill ends it without grace. It returns at once.
	Kill()
	// Gone is closed when nothing of it is left on the other side, or every way to end it
	// was tried.
	Gone() <-chan struct{}
	// Release frees what it uses in Orla. It is called after Gone, and returns when none of
	// its goroutines is left.
	Release()
}

// A Process is a Connection with a process.
type Process interface {
	Connection
	// Pid is 0 if the process is not on this machine.
	Pid() int
	// Applied returns which of the limits that it was started with are in effect.
	Applied() launch.Applied
}

// An Expirer is a Connection that can also expire, which is not a failure: its server ended
// the session. The next one begins at once.
type Expirer interface {
	// Expired reports whether it expired. It may be called only after Exited.
	Expired() bool
}

var _ Process = (*stdio.Connection)(nil)

// startProcess is Options.Connect for a process of the Launcher's.
func (c *Capsule) startProcess(ctx context.Context) (Connection, error) {
	spec, err := c.spec()
	if err != nil {
		return nil, err
	}
	p, err := stdio.Launch(ctx, c.opts.Launcher, spec)
	if err != nil {
		return nil, err
	}
	connection := c.piped(p)
	connection.Origin = handover.Origin(c.tool, &spec)
	return connection, nil
}

func (c *Capsule) piped(p stdio.Process) *stdio.Connection { return stdio.New(p, c.pipes()) }

// pipes are the options of a connection with a process.
func (c *Capsule) pipes() stdio.Options {
	return stdio.Options{MaxMessage: int(c.tool.Runtime.MaxMessage), Stall: c.tool.Run.Timeout, Spare: clients.Spare, LeftOut: clients.LeftOut(c.tool.Name, c.log)}
}

// pid is the id of the process, 0 if there is none.
func (in *incarnation) pid() int {
	if p, ok := in.connection.(Process); ok {
		return p.Pid()
	}
	return 0
}

// place says where the process is; "" if that is this machine.
func (in *incarnation) place() string {
	if p, ok := in.connection.(interface{ Place() string }); ok {
		return p.Place()
	}
	return ""
}

// applied returns which limits are in effect for the process.
func (in *incarnation) applied() launch.Applied {
	if p, ok := in.connection.(Process); ok {
		return p.Applied()
	}
	return launch.Applied{}
}
