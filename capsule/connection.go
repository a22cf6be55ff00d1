package capsule

import (
	"context"
	"time"

	"github.com/orla-project/orla/capsule/stdio"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// Connection is one life of what a capsule speaks with: a process and its pipes
// (capsule/stdio), or a session with a server that is far away (internal/service/remote). The
// calls on it are an rpc.Conn's (docs/decisions/0035).
type Connection interface {
	// Open returns the calls on it. It is called once, before all else.
	Open(opts rpc.Options) *rpc.Conn
	// Listen begins to read. It is called once, after Open. logged is called for each line
	// of text for the log, of which some bytes may have been dropped, and panicked for a
	// panic over what was said.
	Listen(logged func(line []byte, dropped int), panicked func(p any))
	// Exited is closed when what it speaks with is gone.
	Exited() <-chan struct{}
	// ExitText tells how that ended, as it goes on after "it". It may be called only
	// after Exited.
	ExitText() string
	// Heard is closed when nothing more can come: all that was said has been heard.
	Heard() <-chan struct{}
	// AwaitLast waits for a moment, after Exited, until what was said before has been
	// heard.
	AwaitLast()
	// Finish ends it in order, within patience. What is to be answered was answered, or is
	// wanted no more. It returns at once.
	Finish(patience time.Duration)
	// Kill ends it without grace. It returns at once.
	Kill()
	// Gone is closed when nothing of it is left there, or all was tried that ends it.
	Gone() <-chan struct{}
	// Release gives back what it has here. It is called after Gone, and returns when no
	// goroutine of it is left.
	Release()
}

// A Process is a Connection with a process.
type Process interface {
	Connection
	// Pid is 0 for what is no process of this machine.
	Pid() int
	// Held tells which of the limits that it was started with hold.
	Held() launch.Held
}

// An Expirer is a Connection that may also end in order, without having failed: a
// session that its server has ended. The next one follows at once.
type Expirer interface {
	// Expired reports whether it ended so. It may be called only after Exited.
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
	return c.piped(p), nil
}

func (c *Capsule) piped(p stdio.Process) *stdio.Connection {
	return stdio.New(p, stdio.Options{MaxMessage: int(c.tool.Runtime.MaxMessage), Stall: c.tool.Run.Timeout})
}

// pid is the id of the process, 0 if there is none.
func (in *incarnation) pid() int {
	if p, ok := in.connection.(Process); ok {
		return p.Pid()
	}
	return 0
}

// held tells which limits hold for the process.
func (in *incarnation) held() launch.Held {
	if p, ok := in.connection.(Process); ok {
		return p.Held()
	}
	return launch.Held{}
}
