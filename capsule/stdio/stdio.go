// Package stdio is the connection of a capsule with a process: messages on its stdin
// and stdout, one on each line, and lines for the log on its stderr.
package stdio

import (
	"bytes"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/mcp/linerpc"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/observe/tail"
)

// maxLogLine bounds a line of stderr in bytes. The rest is dropped, and the log says so.
const maxLogLine = 64 << 10

// lastWords bounds the time to read the rest of the output of a process that has ended. The
// output is in the pipe already, but another process may keep the pipe open.
const lastWords = 200 * time.Millisecond

// Process is one life of a process, as a launch.Process is.
type Process interface {
	// Pid is 0 if the process is not on this machine.
	Pid() int
	Streams() (stdin, stdout, stderr linerpc.Stream)
	// Exited is closed when the process itself is gone, Gone when its tree is.
	// A process that is gone has closed its ends of the streams.
	Exited() <-chan struct{}
	Gone() <-chan struct{}
	// Applied tells which of the limits that it was started with hold.
	Applied() launch.Applied
	// ExitText tells how it ended, as it goes on after "it". It may be called
	// only after Exited.
	ExitText() string
	// Finish gives the tree a time to end after its stdin was closed, then
	// SIGTERM, the grace and SIGKILL. It returns at once.
	Finish(patience time.Duration)
	// Kill ends the tree without grace. It returns at once.
	Kill()
}

// Options configures a Connection. MaxMessage and Stall are required.
type Options struct {
	MaxMessage int           // bytes of a line from the process
	Stall      time.Duration // how long it may leave a message unread
	Before     *State        // what the program before has given of the connection; nil for none
	// Spare and LeftOut are those of linerpc.Options.
	Spare   func(line []byte) (call int64, spare bool)
	LeftOut func(lines int)
}

// Connection is a connection with one process: a capsule.Process.
type Connection struct {
	Process
	// Origin says what started the process, for whoever takes it over.
	Origin string

	opts    Options
	conn    *linerpc.Conn // set by Open
	readers sync.WaitGroup
	read    chan struct{} // closed when its stdout has been read to the end
	logged  chan struct{} // closed when its stderr has

	leaving atomic.Bool // Give was called
	hurried bool        // see Give
	text    []byte      // of a line on its stderr that has not ended; set by Listen if leaving
}

// New returns a connection with a process that was just started.
func New(p Process, opts Options) *Connection {
	return &Connection{Process: p, opts: opts, read: make(chan struct{}), logged: make(chan struct{})}
}

// Place says where the process is, if its Launcher does; "" if that is this machine.
func (c *Connection) Place() string {
	if at, ok := c.Process.(interface{ Place() string }); ok {
		return at.Place()
	}
	return ""
}

// Open implements capsule.Connection. The requests to a process elsewhere have random ids.
func (c *Connection) Open(opts rpc.Options) *rpc.Conn {
	stdin, stdout, _ := c.Streams()
	opts.RandomIDs = c.Place() != "" // what it said may be read from a log, where its stderr is too
	var unread []byte
	if b := c.opts.Before; b != nil {
		opts.Before, unread = &b.Calls, b.Unread
	}
	c.conn = linerpc.New(stdin, stdout, linerpc.Options{
		Options: opts, MaxMessage: c.opts.MaxMessage, Stall: c.opts.Stall, Unread: unread, Spare: c.opts.Spare, LeftOut: c.opts.LeftOut,
	})
	return c.conn.Conn
}

// Listen implements capsule.Connection.
func (c *Connection) Listen(logged func(line []byte, dropped int), panicked func(p any)) {
	_, _, stderr := c.Streams()
	c.readers.Go(func() {
		defer close(c.read)
		defer c.contain(panicked)
		_ = c.conn.Serve() // that it ended is all that matters
	})
	c.readers.Go(func() {
		defer close(c.logged)
		defer c.contain(panicked)
		var unasked pace.Pace
		text := unasked.Reader(stderr)
		if b := c.opts.Before; b != nil {
			text = io.MultiReader(bytes.NewReader(b.Text), text)
		}
		rest, dropped, _ := tail.Until(text, maxLogLine, func(line []byte, dropped int) { // that it ended is all that matters
			logged(line, dropped)
			unasked.Wait(nil, 1, 0)
		})
		switch {
		case c.leaving.Load():
			c.text = rest
		case rest != nil:
			logged(rest, dropped)
		}
	})
}

// contain keeps a panic over what a process said from ending more. It is deferred.
func (*Connection) contain(panicked func(p any)) {
	if p := recover(); p != nil {
		panicked(p)
	}
}

// Heard implements capsule.Connection.
func (c *Connection) Heard() <-chan struct{} { return c.read }

// AwaitLast implements capsule.Connection.
func (c *Connection) AwaitLast() {
	timer := time.NewTimer(lastWords)
	defer timer.Stop()
	for _, done := range []chan struct{}{c.read, c.logged} {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// Finish implements capsule.Connection: it ends the process by the end of its stdin.
func (c *Connection) Finish(patience time.Duration) {
	stdin, _, _ := c.Streams()
	c.Process.Finish(patience) // first: an exit after the end of stdin is not a crash
	closeStreams(stdin)
	if c.hurried {
		time.AfterFunc(hurriedGrace, c.Kill) // which does nothing once it has ended
	}
}

// Release implements capsule.Connection.
func (c *Connection) Release() {
	c.AwaitLast()
	_, stdout, stderr := c.Streams()
	past := time.Unix(1, 0)
	_ = stdout.SetReadDeadline(past) // another process may hold the other end
	_ = stderr.SetReadDeadline(past)
	c.readers.Wait()
	closeStreams(stdout, stderr)
}

// closeStreams closes Orla's ends of a process that is gone.
func closeStreams(streams ...linerpc.Stream) {
	for _, s := range streams {
		if f, ok := s.(*os.File); ok && f == nil {
			continue
		}
		_ = s.Close() // nothing more can be read or written
	}
}
