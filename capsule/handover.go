package capsule

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/orla-project/orla/capsule/handover"
	"github.com/orla-project/orla/capsule/stdio"
)

// giving is how a capsule is given to the program that follows in this process (docs/decisions/0051), and what this
// one has taken from the program before.
type giving struct {
	gives chan chan json.RawMessage // requests to give the process away
	taken *handover.Taken           // the process to go on with; owned by New, then by Serve
	unfit *handover.Taken           // a process that must end before the first start; the same
}

// errGiven ends what still waits for a process that was given away.
var errGiven = errors.New("another program has taken over the process")

// Give gives the process of a capsule that is READY to the program that follows, and returns its handover.State. No
// call may be in flight, and none may come. If it reports false, nothing is given.
func (c *Capsule) Give(ctx context.Context) (json.RawMessage, bool) {
	if c.opts.Connect != nil || c.status.Load().state != Ready {
		return nil, false
	}
	answer := make(chan json.RawMessage, 1)
	select {
	case c.gives <- answer:
	case <-ctx.Done():
		return nil, false
	}
	select {
	case state := <-answer:
		return state, state != nil
	case <-ctx.Done():
		return nil, false
	}
}

// giveAway gives a process away. It reports false if that is not possible; the process has to be ended then.
func (c *Capsule) giveAway(in *incarnation, answer chan<- json.RawMessage) bool {
	var state []byte
	defer func() { answer <- state }()
	from, ok := in.connection.(*stdio.Connection)
	if !ok {
		return false
	}
	in.relay.Refuse()
	given, err := from.Give()
	if err != nil {
		log := c.log.Warn
		if errors.Is(err, stdio.ErrElsewhere) {
			log = c.log.Info
		}
		log("a capsule cannot be given to the new program, and is ended", "tool", c.tool.Name, "pid", in.pid(), "err", err)
		return false
	}
	s := handover.State{
		Origin: from.Origin, Connection: given, Began: in.began, Ready: in.ready, Hello: in.hello, Peer: in.conn.State(),
		Files: c.files.Sum(), Started: int(c.started.Load()),
	}
	if c.Offers().Known {
		s.Offered = handover.OfferedOf(c.offers.Last())
	}
	state, _ = json.Marshal(s) // what it has can be marshalled
	c.become(status{state: Stopping, reason: errGiven.Error(), starts: byNobody, run: in.run()})
	in.conn.Close(errGiven)
	in.connection.Release()
	c.reportStderr()
	return true
}

// take decides whether the capsule goes on with a process of the program before.
func (c *Capsule) take(t *handover.Taken) {
	if t == nil {
		return
	}
	c.started.Store(int64(t.Started))
	if t.Process == nil {
		return
	}
	spec, err := c.spec()
	if err != nil || handover.Origin(c.tool, &spec) != t.Origin {
		c.log.Info("the process of the program before is ended: what starts it has changed", "tool", c.tool.Name, "pid", t.Process.Pid())
		c.unfit = t
		return
	}
	c.taken = t
	if t.Offered != nil {
		c.offers.Set(*t.Offered)
	}
}

// goesOn reports whether there is a process to go on with. It ends one that is not to be used.
func (c *Capsule) goesOn(ctx context.Context) bool {
	if c.unfit != nil {
		c.unfit.End()
		c.unfit = nil
	}
	if c.taken != nil && (ctx.Err() != nil || c.orders.last.Load().held) {
		c.taken.End()
		c.taken = nil
	}
	return c.taken != nil
}

// open returns the connection of the next process, and what was taken of it; nil if the process is a new one.
func (c *Capsule) open(ctx context.Context) (Connection, *handover.Taken, error) {
	t := c.taken
	if t == nil {
		connection, err := c.connect(ctx)
		return connection, nil, err
	}
	c.taken = nil
	return t.Connection(c.pipes()), t, nil
}

// goOn makes an incarnation the one that the program before had.
func (in *incarnation) goOn(t *handover.Taken) {
	in.began, in.ready, in.hello = t.Began, t.Ready, t.Hello
	in.handshake.Skip()
	in.taken = true
}
