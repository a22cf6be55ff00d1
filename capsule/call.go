package capsule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/capsule/clients"
	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/capsule/refusal"
	"github.com/orla-project/orla/capsule/wishes"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

var (
	// errGone refuses calls that were not sent.
	errGone = fault.Unsent(fault.Wrap(fault.NotReady, peer.ErrGone, "the capsule is being stopped; try again"))
	// errCut ends calls that were sent.
	errCut = fault.New(fault.NotReady, "the capsule was stopped during the call; try again")
)

// Call answers a call with a whole CallToolResult as JSON. A call that meets a capsule that is not READY waits for it as SPEC D10
// says; one that was sent ends with the answer, with ctx, or with the process.
func (c *Capsule) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	raw, err := c.call(ctx, call, c.offers.OwnTool(call.Tool))
	return peer.Answer{Raw: raw}, err
}

// CallOriginal is like Call, but call.Tool is the capsule's own name of the tool.
func (c *Capsule) CallOriginal(ctx context.Context, call peer.Call) (peer.Answer, error) {
	raw, err := c.call(ctx, call, call.Tool)
	return peer.Answer{Raw: raw}, err
}

// Settle waits, as a call does, until the process that would answer has said what it offers. If that ends before, the next one would.
func (c *Capsule) Settle(ctx context.Context, owner turns.Owner) {
	until, ended := time.Now().Add(c.tool.Runtime.QueueTimeout), (*protocol.Peer)(nil)
	for {
		conn, err := c.ready(ctx, asker{owner: owner}, ended, until)
		if err != nil || conn.AwaitListed(ctx) || ctx.Err() != nil {
			return
		}
		ended = conn
	}
}

func (c *Capsule) call(ctx context.Context, call peer.Call, own string) (json.RawMessage, error) {
	if err := c.place(ctx, call.Owner); err != nil {
		return nil, err
	}
	late, placed := false, true
	defer func() {
		if placed && !late {
			c.places.Give(call.Owner)
		}
	}()
	defer c.calls.Add(1)
	given := c.inputs.Given(call.Owner)
	defer given.Drop()
	for round := 1; ; round++ {
		result, stateless, err := c.send(ctx, askerOf(call), "tools/call", c.lateCall, func(ctx context.Context, p *protocol.Peer, id int64) [][]byte {
			return p.CallParams(own, call, protocol.Traced(ctx, call.Meta), id)
		})
		if err != nil {
			err, late = rpc.IsLate(err)
			return nil, c.callError(err)
		}
		if len(result) >= turns.Heavy { // others need not wait until it is read
			c.places.Give(call.Owner)
			placed = false
		}
		result, requires, err := clients.ReadResult(ctx, result, stateless)
		switch {
		case err != nil:
			return nil, c.sendError(err)
		case !requires:
			return result, nil
		case call.Client != nil && call.Client.Declared().Repeats:
			return result, nil
		}
		ctx = rejudge.Sent(ctx) //nolint:fatcontext // the first round alone makes one
		if !placed {
			if err := c.place(ctx, call.Owner); err != nil {
				return nil, err
			}
			placed = true
		}
		if call.Input, err = c.inputs.Fulfil(ctx, call.Client, result, round, given); err != nil {
			return nil, err
		}
	}
}

// maxBeside is how many calls a caller may have at once at a capsule without max_concurrency while another caller has some too; the
// same holds for the sessions of one caller. So a caller that floods the capsule does not keep it from the others.
const maxBeside = 16

// maxBesideSerial is the same for a capsule that may work on one call at a time: the call of another caller waits for as many of them.
const maxBesideSerial = 2

func placesOf(concurrency int) *turns.Queue {
	if concurrency > 0 {
		return turns.NewQueue(concurrency, 0)
	}
	return turns.NewQueue(turns.NoLimit, maxBesideSerial)
}

// place waits for a place until ctx ends. If the capsule is down, it returns the error at
// once, however many calls wait.
func (c *Capsule) place(ctx context.Context, owner turns.Owner) error {
	if c.places.Try(owner) {
		return nil
	}
	ctx, end := rejudge.While(ctx)
	defer end()
	if _, err := c.ready(ctx, asker{owner: owner}, nil, time.Now().Add(c.tool.Runtime.QueueTimeout)); err != nil {
		return err
	}
	if !c.waiting.Try(owner, 1) {
		return c.tooMany()
	}
	defer c.waiting.Give(owner, 1)
	if err := c.places.Take(ctx, owner); err != nil {
		return fault.Unsent(err)
	}
	return nil
}

func (c *Capsule) tooMany() error {
	return fault.Unsent(fault.New(fault.NotReady, "%s: %d calls wait for it already; try again later", c.tool.Name, c.waiting.Taken()))
}

// Request answers any other request.
func (c *Capsule) Request(ctx context.Context, req peer.Request) (json.RawMessage, error) {
	forget, ok := c.wishes.Remember(req)
	if !ok {
		return nil, fault.New(fault.RateLimited, "%s: clients follow %d of its resources already; unsubscribe from some", c.tool.Name, wishes.MaxSubscribed)
	}
	now := c.status.Load()
	switch wish := slices.Contains(wishes.Methods, req.Method); {
	case wish && now.state == Ready && now.conn.Stateless():
		return json.RawMessage(`{}`), nil // listen tells it, or each request does
	case req.Method == "logging/setLevel" || req.Later:
		if now.state != Ready {
			return json.RawMessage(`{}`), nil // it is told when it is READY
		}
		forget = func() {} // its next process is told, whatever becomes of this one
	}
	who := asker{owner: req.Owner, client: req.Client, name: req.Session, input: req.Input}
	if who.client != nil {
		who.name = who.client.Session()
	}
	// These do not count for max_concurrency: a call in flight may wait for its client to
	// read something first.
	if err := c.requests.Take(ctx, who.owner); err != nil {
		forget()
		return nil, fault.Unsent(err)
	}
	late := false
	defer func() {
		if !late {
			c.requests.Give(who.owner)
		}
	}()
	params := req.Params
	if req.Method == "prompts/get" || req.Method == "completion/complete" {
		params = c.offers.OwnPrompt(params)
	}
	result, err := c.repeated(ctx, who, req, params)
	if err != nil {
		err, late = rpc.IsLate(err)
		forget()
		return nil, err
	}
	if !rawjson.IsObject(result) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("%s answered %s with something else than a result", c.tool.Name, req.Method)}
	}
	return result, nil
}

// repeated makes a request other than a call. If the answer requires input, it asks the client for it and makes the request again.
func (c *Capsule) repeated(ctx context.Context, who asker, req peer.Request, params json.RawMessage) (json.RawMessage, error) {
	given := c.inputs.Given(who.owner)
	defer given.Drop()
	for round := 1; ; round++ {
		result, stateless, err := c.send(ctx, who, req.Method, c.lateRequest, func(_ context.Context, p *protocol.Peer, id int64) [][]byte {
			return p.RequestParams(req, params, who.input, id)
		})
		if err != nil || !stateless || !clients.Requires(result) || who.client != nil && who.client.Declared().Repeats {
			return result, err
		}
		if who.input, err = c.inputs.Fulfil(ctx, who.client, result, round, given); err != nil {
			return nil, err
		}
	}
}

// asker is who makes a request.
type asker struct {
	owner  turns.Owner // see peer.Call
	name   string      // see rpc.Request.Client
	client peer.Client // nil if nothing can be sent to it
	input  peer.Input
}

// operator is the name of those who call from outside MCP ("orla call"). No client
// has it.
const operator = "\x00operator"

func askerOf(call peer.Call) asker {
	who := asker{owner: call.Owner, name: operator, client: call.Client, input: call.Input}
	if call.Client != nil {
		who.name = call.Client.Session()
	}
	return who
}

// send sends one request to the process that is READY, or that will be in time. params gets the trace context of the process's part,
// the process and the id of the request. stateless reports whether the process speaks 2026-07-28. If the error is a *rpc.LateError,
// late gives back the place of the request later, and the caller must not.
func (c *Capsule) send(ctx context.Context, who asker, method string, late func(turns.Owner), params func(context.Context, *protocol.Peer, int64) [][]byte) (_ json.RawMessage, stateless bool, _ error) {
	req := rpc.Request{Method: method, Client: who.name, About: who.client, Owner: who.owner}
	if c.opts.Connect == nil { // a far server does not hear of a request that is given up
		req.Late, req.LateFor = late, c.tool.Run.Timeout
	}
	if who.client != nil && who.client.Hears() {
		req.Note = func(method string, params json.RawMessage) { who.client.Notify(ctx, method, params) }
	}
	var last *protocol.Peer
	until := time.Now().Add(c.tool.Runtime.QueueTimeout)
	for {
		conn, err := c.ready(ctx, who, last, until)
		if err != nil {
			return nil, false, err
		}
		if who.input.State != nil && !conn.Stateless() {
			return nil, false, errUnknownState
		}
		working, end := trace.Begin(ctx)
		result, err := conn.CallWith(working, req, func(id int64) [][]byte { return params(working, conn, id) })
		end()
		c.noteSideBySide(conn)
		switch {
		case err == nil:
			return result, conn.Stateless(), nil
		case missed(err) && ctx.Err() != nil:
			return nil, false, fault.Unsent(context.Cause(ctx))
		case missed(err):
			last = conn // it is ending; the next process will do
		default:
			if late, is := err.(*rpc.LateError); is { //nolint:errorlint // nobody wraps it
				return nil, false, &rpc.LateError{Cause: c.sendError(late.Cause)}
			}
			return nil, false, c.sendError(err)
		}
	}
}

// errUnknownState refuses a requestState that the present process cannot have given.
var errUnknownState = &jsonrpc.Error{
	Code:    jsonrpc.CodeInvalidParams,
	Message: "requestState is not that of an open call: its time is over, it has been used, or the request is another; call again without it",
}

// noteSideBySide lets callers have more calls at once, if the process has answered calls
// out of order and so works on several at a time.
func (c *Capsule) noteSideBySide(conn *protocol.Peer) {
	now := conn.SideBySide()
	if c.sideBySide.Load() == now || c.sideBySide.Swap(now) == now { // as a rule, nothing is written
		return
	}
	most := maxBesideSerial
	if now {
		most = maxBeside
	}
	c.places.SetBeside(most)
	c.requests.SetBeside(most)
}

// sendError returns the error of a request that was sent, with an error code.
func (c *Capsule) sendError(err error) error {
	if failed, ok := errors.AsType[*rpc.TransportError](err); ok {
		return c.named(failed.Fault)
	}
	if _, ok := errors.AsType[*fault.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return err
	}
	name := c.tool.Name
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fault.From(err)
	case errors.Is(err, rpc.ErrNoRoom):
		return fault.New(fault.RateLimited, "%s has answered, but other answers of the same caller that were not read yet use all the memory for answers; read these and call again", name)
	case errors.Is(err, rpc.ErrTooLong):
		return fault.Wrap(fault.ExecutionFailed, err, "%s gave an answer of over max_message (%d bytes)", name, c.tool.Runtime.MaxMessage)
	}
	return c.crashedDuring(err, err.Error())
}

// betweenTries is the least time between two calls that try to reach a remote server again.
const betweenTries = time.Second

// ready returns the process that is READY, if it is not failed. It waits for one until ctx
// ends or until is reached (SPEC D10). Its error says that nothing was sent.
func (c *Capsule) ready(ctx context.Context, who asker, failed *protocol.Peer, until time.Time) (*protocol.Peer, error) {
	if s := c.status.Load(); s.state == Ready && s.conn != failed {
		return s.conn, nil
	}
	if !c.waiting.Try(who.owner, 1) {
		return nil, c.tooMany()
	}
	defer c.waiting.Give(who.owner, 1)
	ctx, end := rejudge.While(ctx)
	defer end()
	report := peer.Reporter(ctx, who.client, "")
	horizon := until
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(horizon) {
		horizon = deadline
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for {
		s := c.status.Load()
		switch {
		case s.starts == byNobody:
			return nil, errGone
		case s.starts == byOperator:
			return nil, c.notReady(s)
		case s.state == Ready && s.conn != failed:
			return s.conn, nil
		case s.state == Stopped && s.starts != byCall, s.state == Crashed && (s.next.IsZero() || s.next.After(horizon)):
			return nil, c.notReady(s)
		case s.starts == byCall && s.cause != nil && time.Since(s.since) < betweenTries:
			return nil, c.notReady(s)
		case s.starts == byCall:
			select {
			case c.wake <- struct{}{}:
			default: // a token is there already
			}
		}
		if s.installs {
			report(c.publicReason(s))
			timer.Reset(c.tool.Runtime.QueueTimeout) // which is for the start
		}
		select {
		case <-s.changed:
		case <-timer.C:
			if c.status.Load().installs {
				continue
			}
			return nil, c.notReady(c.status.Load())
		case <-ctx.Done():
			return nil, c.gaveUp(context.Cause(ctx))
		}
	}
}

// gaveUp returns the error of a call whose context ended while it waited.
func (c *Capsule) gaveUp(cause error) error {
	f := fault.From(cause)
	if f.Code != fault.Timeout {
		return fault.Unsent(f)
	}
	return fault.Unsent(fault.Wrap(fault.Timeout, f.Err, "%s: %s", f.Reason, fault.From(c.notReady(c.status.Load())).Reason))
}

// notReady returns the error of a call that does not wait any longer: the state, the cause,
// the last lines of stderr and when the next start is due (SPEC D10).
func (c *Capsule) notReady(s *status) error {
	if s.starts == byOperator {
		return fault.Unsent(c.heldError(fmt.Sprintf("is %s: it was stopped by an operator", s.state)))
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s is %s", c.tool.Name, s.state)
	code := fault.NotReady
	switch s.state {
	case Crashed, Stopped:
		code = fault.Crashed
		if !c.wasReady.Load() {
			code = fault.StartFailed
		}
		code = cmp.Or(refusal.By(s.cause), code)
		fmt.Fprintf(&text, ": %s", c.publicReason(s))
	case Created, Starting, Ready, Reloading, Stopping:
		if s.cause != nil {
			fmt.Fprintf(&text, " again, since it failed: %s", c.publicReason(&status{reason: fault.ReasonOf(s.cause), cause: s.cause}))
		}
		fmt.Fprintf(&text, "; a call waits for it %s at most", c.tool.Runtime.QueueTimeout)
	}
	switch due := max(0, time.Until(s.next)).Round(100 * time.Millisecond); {
	case s.state == Stopped && s.starts == byCall && s.cause != nil:
		fmt.Fprintf(&text, "; the next call tries again, and Orla by itself in %s", due)
	case !s.next.IsZero():
		fmt.Fprintf(&text, "; the next start is due in %s", due)
	case s.state == Stopped && s.starts != byCall:
		fmt.Fprintf(&text, "; it is started again when its files change, or by \"orla start %s\"", c.tool.Name)
	}
	switch lines := c.stderr.Load().Short(); {
	case lines == "":
	case c.shared(): // they may be about another caller's call
		fmt.Fprintf(&text, "; its last lines on stderr are in Orla's log and in \"orla status %s\"", c.tool.Name)
	default:
		fmt.Fprintf(&text, "; its last lines on stderr:\n%s", lines)
	}
	f := fault.New(code, "%s", text.String())
	f.Unsent = true
	if c.gaveUpOn(s) {
		f.Retry = new(false)
	}
	return f
}

// shared reports whether several callers may call the capsule.
func (c *Capsule) shared() bool { return c.opts.Shared != nil && c.opts.Shared() }

// publicReason returns the reason of a status for callers. If there are several, they do not see what an installer
// prints.
func (c *Capsule) publicReason(s *status) string {
	failed, ok := errors.AsType[*deps.Error](s.cause)
	switch {
	case !c.shared():
		return s.reason
	case s.installs:
		return installing
	case ok:
		return failed.Public() + fmt.Sprintf(" and in \"orla status %s\"", c.tool.Name)
	}
	return s.reason
}

// heldError returns the error of calls to a capsule that an operator has stopped: trying
// again does not help.
func (c *Capsule) heldError(what string) error {
	return fault.New(fault.NotReady, "%s %s; \"orla start %s\" starts it", c.tool.Name, what, c.tool.Name).Again(false)
}
