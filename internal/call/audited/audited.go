// Package audited records calls in the audit log: each call that is made has one line (SPEC-TOOLS 8.8).
package audited

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/supervisor"
)

// Recorder records calls in an audit log.
type Recorder struct{ Log *audit.Log }

// Begin is for supervisor.Options.Audit. A call that cannot be recorded is not made (SPEC-TOOLS 8.8).
func (r Recorder) Begin(call peer.Call) (*peer.Decision, supervisor.Ended, error) {
	if why := r.Log.Err(); why != nil {
		r.Log.Refused()
		return nil, nil, fault.Unsent(fault.Wrap(fault.NotReady, why, "the audit log cannot be written, and no call is made without a line in it; the operator has to make room for it or to fix audit_log"))
	}
	e := r.line(&call)
	return &e.call.Decision, e.ended, nil
}

// Refused records a call that is refused before Begin, such as one of a tool that does not exist. If that cannot be recorded, it
// only counts.
func (r Recorder) Refused(ctx context.Context, call peer.Call, err error) {
	if r.Log.Err() != nil {
		r.Log.Refused()
		return
	}
	if call.Began.IsZero() {
		call.Began = time.Now()
	}
	r.line(&call).end(ctx, "", peer.Answer{}, err)
}

// auditLine is a call on its way to the audit log. It is used again for another call after its line was made, so that nobody may
// keep it longer.
type auditLine struct {
	ctx   context.Context //nolint:containedctx // of the call
	to    *audit.Log
	began time.Time
	call  audit.Call

	ended  supervisor.Ended                         // end
	record func(outcome string, took time.Duration) // write
}

var entries sync.Pool

// line returns the line of a call that begins.
func (r Recorder) line(call *peer.Call) *auditLine {
	e, used := entries.Get().(*auditLine)
	if !used {
		e = &auditLine{}
		e.ended, e.record = e.end, e.write // once, and not for each call
	}
	e.to, e.began = r.Log, call.Began
	c := &e.call
	c.Caller, c.Agent, c.Task, c.Tool = call.Caller, rules.AgentIn(call.Meta), call.Task, call.Tool
	c.Args, c.Input, c.Verdict = call.Args, call.Input.Responses, audit.None // the rest is empty
	return e
}

// end records the call. If the answer is a Raw, only who reads it knows how the call ended: end returns what they must call with that.
func (e *auditLine) end(ctx context.Context, target string, got peer.Answer, err error) func(outcome string, took time.Duration) {
	c := &e.call
	c.Target, c.ID = target, callid.From(ctx)
	if t := trace.From(ctx); !t.IsZero() {
		c.Trace = t.TraceID()
	}
	e.ctx = ctx
	if err == nil && got.Raw != nil {
		return e.record
	}
	e.write(outcomeOf(got, err), 0)
	return nil
}

// write appends the line. Large arguments are hashed when it is the caller's turn. It is called once.
func (e *auditLine) write(outcome string, took time.Duration) {
	e.to.End(&e.call, e.began, took)
	e.call.Outcome = outcome
	if size := len(e.call.Args) + len(e.call.Input); size < turns.Heavy || turns.AccountOf(e.ctx).Work(e.ctx, size, func() { e.to.Record(&e.call) }) != nil {
		e.to.Record(&e.call)
	}
	e.ctx, e.to, e.call = nil, nil, audit.Call{}
	entries.Put(e)
}

// Admit returns an admission that notes what admit has decided, unless admit notes it.
func (r Recorder) Admit(admit admission) admission {
	return func(ctx context.Context, call peer.Call, target *rules.Target) (supervisor.Admitted, error) {
		admitted, err := admit(ctx, call, target)
		switch made := call.Decided; {
		case made == nil, made.Verdict != audit.None: // it has noted it
		case err != nil:
			made.Verdict = audit.Deny
		default:
			made.Verdict = audit.Allow
		}
		return admitted, err
	}
}

// admission is supervisor.Options.Admit.
type admission = func(context.Context, peer.Call, *rules.Target) (supervisor.Admitted, error)

// outcomeOf returns how a call without a Raw ended, as the audit log has it: the code that the client gets.
func outcomeOf(got peer.Answer, err error) string {
	if rpc, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return strconv.FormatInt(rpc.Code, 10)
	}
	if f := fault.From(err); f != nil {
		return string(f.Code)
	}
	if got.Result == nil || !got.Result.IsError {
		return audit.OK
	}
	if code, ok := got.Result.Meta[results.MetaToolCode]; ok {
		return fmt.Sprint(code)
	}
	return string(fault.ExecutionFailed)
}
