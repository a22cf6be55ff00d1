package stdio

import (
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

// Give gives the connection to the program that follows. No call may be pending. It reports false if that is not
// possible; the connection is over in any case, and has to be ended as usual then. If it reports true, Gone is closed
// and nothing is left to do but Release.
func (c *Connection) Give() (State, bool) {
	p, ok := c.Process.(launched)
	if !ok {
		return State{}, false
	}
	local, ok := p.Process.(*launch.LocalProcess)
	if !ok {
		return State{}, false
	}
	unread, ok := c.conn.Leave(leavePatience)
	if !ok {
		return State{}, false
	}
	c.leaving.Store(true)
	stdin, _, stderr := c.Streams()
	_ = stderr.SetReadDeadline(time.Unix(1, 0)) // ends the wait of its reader
	select {
	case <-c.logged:
	case <-time.After(leavePatience):
		return State{}, false
	}
	given, ok := local.Give()
	if !ok {
		return State{}, false
	}
	closeStreams(stdin) // the duplicate is open
	return State{Process: given, Calls: c.conn.State(), Unread: unread, Text: c.text}, true
}

// Taken returns a Process that the program before has given, and that was adopted.
func Taken(p *launch.LocalProcess) Process { return launched{p} }
