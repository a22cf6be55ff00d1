package stdio

import (
	"errors"
	"time"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// State is a connection that was given to the program that follows in this process (docs/decisions/0051).
type State struct {
	Process launch.ProcessState `json:"process"`
	Calls   rpc.State           `json:"calls"`
	Unread  []byte              `json:"unread,omitempty"` // of a line on its stdout that has not ended
	Text    []byte              `json:"text,omitempty"`   // the same of its stderr
}

// leavePatience bounds the time to send what waits and to read what has come.
const leavePatience = 2 * time.Second

// maxUnread bounds what is given of a line on its stdout that has not ended, in bytes: all callers wait while it is written and
// read (SPEC N2).
const maxUnread = 1 << 20

// ErrElsewhere is why a process with an isolation mode is not given. A sandbox is part of the program that made it: the
// new one may make a better one.
var ErrElsewhere = errors.New("it has an isolation mode")

var (
	errBusy   = errors.New("it does not read its input, or writes without a pause")
	errEnding = errors.New("it has ended, or is being ended")
)

// Give gives the connection to the program that follows. No call may be pending. The error says why that is not
// possible; the connection is over in any case, and has to be ended as usual then. Without an error Gone is closed
// and nothing is left to do but Release. A process that does not react has hurriedGrace after Finish: all callers wait
// meanwhile (SPEC N2).
func (c *Connection) Give() (State, error) {
	state, err := c.give()
	c.hurried = errors.Is(err, errBusy)
	return state, err
}

// hurriedGrace is how long a process that does not react may take to end.
const hurriedGrace = time.Second

func (c *Connection) give() (State, error) {
	p, ok := c.Process.(launched)
	if !ok {
		return State{}, ErrElsewhere
	}
	local, ok := p.Process.(*launch.LocalProcess)
	if !ok {
		return State{}, ErrElsewhere
	}
	unread, ok := c.conn.Leave(leavePatience)
	if !ok || len(unread) > maxUnread {
		return State{}, errBusy
	}
	c.leaving.Store(true)
	stdin, _, stderr := c.Streams()
	_ = stderr.SetReadDeadline(time.Unix(1, 0)) // ends the wait of its reader
	select {
	case <-c.logged:
	case <-time.After(leavePatience):
		return State{}, errBusy
	}
	given, ok := local.Give()
	if !ok {
		return State{}, errEnding
	}
	closeStreams(stdin) // the duplicate is open
	return State{Process: given, Calls: c.conn.State(), Unread: unread, Text: c.text}, nil
}

// Taken returns a Process that the program before has given, and that was adopted.
func Taken(p *launch.LocalProcess) Process { return launched{p} }
