package capsule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/capsule/clients"
	"github.com/orla-project/orla/capsule/handshake"
	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/observe/tail"
	"github.com/orla-project/orla/manifest"
)

// incarnation is one process of a capsule, from its start until nothing of it is left.
// Everything that waits for it runs in the goroutine that began it, so that no timer and no
// event of one process can reach the next one.
type incarnation struct {
	c          *Capsule
	connection Connection
	conn       *protocol.Peer // who is there, and the calls on it
	order      int            // the number of the last order of an operator before its start
	began      time.Time
	ready      time.Time // when it became READY; zero if it did not

	handshake *handshake.Handshake
	hello     protocol.Hello // what is used of its orla.hello
	expected  bool           // its first lists are waited for once more; owned by Serve
	asking    struct {       // for its lists; owned by followLists
		silent   bool // it did not answer
		insisted bool // it was asked once more, with more patience
		unheard  bool // an MCP server did not answer
	}
	relay *clients.Relay // passes on its notifications and requests to clients

	stderr tail.Buffer // its last lines

	taken bool // the program before has had it already

	helpers sync.WaitGroup // what runs while it is READY
	unwell  chan error     // receives why it has to be ended, from a check of its health or a panic
	relist  chan struct{}  // holds a token when it says that its lists have changed
}

// begin starts a process and begins to read from it. order is the number of the last order
// of an operator before it.
func (c *Capsule) begin(ctx context.Context, order int) (*incarnation, error) {
	began := time.Now() // before the start: the process may have missed every change after this
	connection, taken, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	in := &incarnation{
		c: c, connection: connection, order: order, began: began,
		handshake: handshake.New(&c.tool, connection, c.log),
		unwell:    make(chan error, 1),
		relist:    make(chan struct{}, 1),
	}
	pid := in.pid()
	if taken == nil {
		c.started.Add(1)
		about := []any{"tool", c.tool.Name, "pid", pid}
		if place := in.place(); place != "" {
			about = append(about, "place", place)
		}
		c.log.Info("started", about...) // before it is heard
	} else {
		c.started.Store(int64(max(taken.Started, 1)))
		in.goOn(taken)
		c.log.Info("taken over", "tool", c.tool.Name, "pid", pid)
	}
	c.noteLimits(in.applied())
	in.conn = c.orla.With(connection.Open(rpc.Options{Handler: in, Clean: c.clean, Pings: c.orla.Pings()}))
	if taken != nil {
		in.conn.GoOn(taken.Peer)
	}
	in.relay = clients.New(in.conn.Conn, c.tool.Name, c.tool.Runtime.MaxMessage, c.log)
	connection.Listen(func(line []byte, dropped int) { c.logStderr(pid, &in.stderr, line, dropped) }, in.panicked) //nolint:contextcheck // its life is not the start's
	return in, nil
}

// run names the process.
func (in *incarnation) run() run {
	return run{pid: in.pid(), place: in.place(), began: in.began, order: in.order}
}

// contain is deferred: a panic while handling a capsule's message ends the capsule's
// process, and nothing else (SPEC F2).
func (in *incarnation) contain() {
	if p := recover(); p != nil {
		in.panicked(p)
	}
}

// panicked logs a panic and has the process ended.
func (in *incarnation) panicked(p any) {
	in.c.log.Error("panic while handling a message of a capsule", "tool", in.c.tool.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	in.fail(errors.New("its message made Orla panic; the log has the details"))
}

// fail has the process ended, if it is not for another reason.
func (in *incarnation) fail(why error) {
	select {
	case in.unwell <- why:
	default:
	}
}

// spawn runs f in a goroutine while the process is READY.
func (in *incarnation) spawn(f func()) {
	in.helpers.Go(func() {
		defer in.contain()
		f()
	})
}

// greet waits for the end of the handshake (SPEC D4, D8). An error is a failure of the
// start, or ctx's.
func (in *incarnation) greet(ctx context.Context) error {
	if in.taken {
		return nil
	}
	var err error
	if in.hello, err = in.handshake.Await(ctx, in.conn); err == nil {
		in.ready = time.Now()
	}
	return err
}

// exitOr returns an error that says how the process ended, if it ends soon; else an error with the text otherwise.
func (in *incarnation) exitOr(otherwise string) error {
	return handshake.ExitOr(in.connection, "", otherwise)
}

// Notified implements rpc.Handler.
func (in *incarnation) Notified(method string, params json.RawMessage) {
	if in.handshake.First("", method, params) {
		return
	}
	params, ok := protocol.ObjectOf(params)
	if !ok {
		if shown, left := in.c.noise.Allow(maxNoise); shown {
			in.c.log.Warn("a capsule sent a notification whose params are not an object; it is ignored",
				"tool", in.c.tool.Name, "method", method, "not_shown", left)
		}
		return
	}
	switch {
	case method == "orla.hello":
		if shown, left := in.c.noise.Allow(maxNoise); shown {
			in.c.log.Warn("a capsule said hello once more; it is ignored", "tool", in.c.tool.Name, "not_shown", left)
		}
	case method == "notifications/progress":
		in.relay.Progress(params)
	case method == "notifications/message":
		in.relay.Message(params)
	case method == "notifications/resources/updated":
		in.updated(params)
	case strings.HasSuffix(method, "/list_changed"):
		in.relistSoon()
	case method == "notifications/subscriptions/acknowledged":
		in.conn.Acknowledged()
	case method == "notifications/cancelled":
		in.relay.Cancel(params)
	default:
		in.c.log.Debug("a capsule's notification that Orla does not know", "tool", in.c.tool.Name, "method", method)
	}
}

// updated passes on that a resource was updated.
func (in *incarnation) updated(params json.RawMessage) {
	var about struct {
		URI string `json:"uri"`
	}
	if json.Unmarshal(params, &about) != nil || about.URI == "" {
		return
	}
	in.c.wishes.Heard(about.URI)
}

// relistSoon requests the lists of the capsule again.
func (in *incarnation) relistSoon() {
	select {
	case in.relist <- struct{}{}:
	default: // a token is there already
	}
}

// Asked implements rpc.Handler: it takes a request of the capsule.
func (in *incarnation) Asked(id json.RawMessage, method string, params json.RawMessage) {
	if in.handshake.First("the request ", method, params) {
		return
	}
	params, ok := protocol.ObjectOf(params)
	if !ok {
		in.conn.Reply(turns.Owner{}, id, nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "params must be an object"})
		return
	}
	in.relay.Asked(id, method, params)
}

// Unclaimed implements rpc.Handler: it takes an answer that no call waits for.
func (in *incarnation) Unclaimed(id json.RawMessage) {
	if in.handshake.First("an answer", "", nil) {
		return
	}
	in.c.log.Debug("an answer to no call, or to one that is over", "tool", in.c.tool.Name, "id", string(id))
}

// Noise implements rpc.Handler: it takes a line that is not a message, which mostly is a
// stray print (SPEC D5).
func (in *incarnation) Noise(line []byte, why string) {
	in.handshake.Noise(line)
	shown, left := in.c.noise.Allow(maxNoise)
	if !shown {
		return
	}
	text := strings.ToValidUTF8(string(line), "\uFFFD")
	if in.c.tool.Runtime.Remote != nil {
		text = "" // an answer may repeat arguments (SPEC I2)
	}
	in.c.log.Warn("a capsule printed something that is not a JSON-RPC message; logs belong on stderr", "tool", in.c.tool.Name,
		"why", why, "text", text, "not_shown", left)
}

// close ends the process: it waits up to drain for calls in flight, ends those that are left
// with why, closes stdin, and ends the process tree (SPEC D11). Nothing of the process is
// left when close returns.
func (in *incarnation) close(drain time.Duration, why error) {
	idle := in.conn.Drain()
	if drain > 0 {
		select {
		case <-idle:
		case <-in.connection.Exited():
			why = in.cutShort(why)
		case <-in.conn.Over():
			why = in.cutShort(why)
		case <-time.After(drain):
		}
	}
	handshake.AwaitLast(in.connection) // answers from before its end count
	in.relay.Close()
	in.conn.Close(why)
	in.connection.Finish(manifest.CloseGrace)
	<-in.connection.Gone()
	select {
	case <-in.connection.Exited():
		text := in.connection.ExitText()
		in.c.exited(in.began, text)
		in.c.log.Info("ended", "tool", in.c.tool.Name, "pid", in.pid(), "exit", text)
	default: // it could not be killed, which the launcher has logged
	}
	in.connection.Release()
	in.c.reportStderr()
}

// cutShort returns the error of calls whose process failed while it was draining: it replaces
// errDrained, since their time was not over.
func (in *incarnation) cutShort(why error) error {
	if !errors.Is(why, errDrained) {
		return why
	}
	return in.c.crashedDuring(nil, in.exitOr(fmt.Sprint(in.conn.Err())).Error())
}

// exit is how a process ended.
type exit struct {
	began time.Time // the process
	text  string
}

// exited keeps how a process ended, unless a later one has ended already.
func (c *Capsule) exited(began time.Time, text string) {
	for {
		last := c.exits.Load()
		if last != nil && last.began.After(began) || c.exits.CompareAndSwap(last, &exit{began, text}) {
			return
		}
	}
}
