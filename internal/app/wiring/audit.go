package wiring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/supervisor"
)

// openAudit opens the audit log; nil if none is configured.
func openAudit(cfg *config.Loaded, log *slog.Logger) (*audit.Log, error) {
	path := cfg.AuditPath()
	if path == "" {
		return nil, nil
	}
	if err := mayDrop(path, systemd.JournalLimits); err != nil {
		log.Warn("the audit log may lose lines", "err", err)
	}
	return audit.Open(audit.Options{
		Path: path, StateDir: cfg.StateDir, Full: cfg.AuditArguments == config.AuditFull, Journal: systemd.JournalSocket, Log: log,
	})
}

// Refused returns what records a call that is refused before it reaches a tool; nil without an audit log.
func (p *Parts) Refused() func(ctx context.Context, call peer.Call, err error) {
	if p.Audit == nil {
		return nil
	}
	return auditor{p.Audit}.refused
}

// auditor is what records calls in an audit log.
type auditor struct{ to *audit.Log }

// begin is for supervisor.Options.Audit. A call that cannot be recorded is not made (SPEC-TOOLS 8.8).
func (a auditor) begin() (*peer.Decision, supervisor.Ended, error) {
	if why := a.to.Err(); why != nil {
		a.to.Refused()
		return nil, nil, fault.Unsent(fault.Wrap(fault.NotReady, why, "the audit log cannot be written, and no call is made without a line in it; the operator has to make room for it or to fix audit_log"))
	}
	e := a.line()
	return &e.call.Decision, e.ended, nil
}

// refused records a call that is refused before it reaches a tool, such as one that does not exist.
func (a auditor) refused(ctx context.Context, call peer.Call, err error) {
	if a.to.Err() != nil {
		a.to.Refused()
		return
	}
	if call.Began.IsZero() {
		call.Began = time.Now()
	}
	a.line().end(ctx, call, "", peer.Answer{}, err)
}

// auditLine is a call on its way to the audit log. It is used again after its line was made, so nothing keeps it longer.
type auditLine struct {
	ctx  context.Context //nolint:containedctx // of the call
	to   *audit.Log
	call audit.Call

	ended  supervisor.Ended     // end
	record func(outcome string) // write
}

var entries sync.Pool

func (a auditor) line() *auditLine {
	e, used := entries.Get().(*auditLine)
	if !used {
		e = &auditLine{}
		e.ended, e.record = e.end, e.write // once, and not for each call
	}
	e.to, e.call.Verdict = a.to, audit.None // the rest is empty
	return e
}

// end records the call. Who reads what a peer has answered says later how it ended, to what end returns then.
func (e *auditLine) end(ctx context.Context, call peer.Call, target string, got peer.Answer, err error) func(outcome string) {
	c := &e.call
	e.to.End(c, call.Began)
	c.Caller, c.Agent, c.Task, c.Tool, c.Target = call.Caller, governance.AgentIn(call.Meta), call.Task, call.Tool, target
	c.ID, c.Args, c.Input = callid.From(ctx), call.Args, call.Input.Responses
	if t := trace.From(ctx); !t.IsZero() {
		c.Trace = t.TraceID()
	}
	e.ctx = ctx
	if err == nil && got.Raw != nil {
		return e.record
	}
	e.write(outcomeOf(got, err))
	return nil
}

// write appends the line. Large arguments are hashed when it is the caller's turn. It is called once.
func (e *auditLine) write(outcome string) {
	e.call.Outcome = outcome
	if size := len(e.call.Args) + len(e.call.Input); size < turns.Heavy || turns.AccountOf(e.ctx).Work(e.ctx, size, func() { e.to.Record(&e.call) }) != nil {
		e.to.Record(&e.call)
	}
	e.ctx, e.to, e.call = nil, nil, audit.Call{}
	entries.Put(e)
}

// admit returns an Admit that notes what another one has decided, unless that one has noted it.
func (a auditor) admit(admit admission) admission {
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

// AuditProblems are why the audit log is not what its reader takes it for.
func AuditProblems(l *audit.Log) []manifest.Problem {
	if err := l.Elsewhere(); err != nil {
		return []manifest.Problem{{Path: l.Path(), Severity: manifest.Fault, Err: err}}
	}
	if err := mayDrop(l.Path(), systemd.JournalLimits); err != nil {
		return []manifest.Problem{{Path: l.Path(), Severity: manifest.Warning, Err: err}}
	}
	return nil
}

// mayDrop returns why lines of an audit log may be lost, of which Orla is not told; nil if none are. limits is
// systemd.JournalLimits.
func mayDrop(path string, limits func() string) error {
	if path != audit.Journal {
		return nil
	}
	if unit := limits(); unit != "" {
		return fmt.Errorf("the journal drops lines of %s when there are many, and then calls are made that have none: give that unit LogRateLimitIntervalSec=1s and LogRateLimitBurst=1000000, or have audit_log in a file", unit)
	}
	return nil
}
