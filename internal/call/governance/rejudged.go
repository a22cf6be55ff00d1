package governance

import (
	"context"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// rejudged judges a call that waits, when the rules have changed since it was admitted (SPEC-TOOLS 8.6).
type rejudged struct {
	gate     *Gate
	decided  *peer.Decision // see peer.Call.Decided
	caller   rules.Caller
	tool     string
	by       *rules.Set // that has admitted it; nil for a call that needed an approval, or if there were no rules
	target   *rules.Target
	approved *rules.Target // what somebody has approved a call of, since the call has used the approval
}

// Until implements rejudge.Judge.
func (a *rejudged) Until() context.Context {
	a.gate.mu.Lock()
	defer a.gate.mu.Unlock()
	return a.gate.untilLocked()
}

// May implements rejudge.Judge.
func (a *rejudged) May(target *rules.Target) *rejudge.Refusal {
	s := a.gate.now()
	switch {
	case s.closed:
		return &rejudge.Refusal{Err: errClosed}
	case s.set == nil, s.set == a.by && target == a.target:
		return nil
	}
	d := s.set.Decide(a.caller, target)
	if d.Verdict == manifest.Allow || d.Verdict == manifest.ApprovalRequired && a.isApproved(target) {
		return nil
	}
	refused := &rejudge.Refusal{Err: refusal(a.caller.Name, a.tool), Note: func() {
		a.decided.Set(peer.Decision{Class: classOf(d, target), Rule: d.Rule, Verdict: string(manifest.Deny)})
	}}
	if d.Verdict == manifest.Deny {
		return refused
	}
	refused.Err = fault.New(fault.PermissionDenied,
		"tool_permission_denied: the rules, or the tool, have changed, and a call of %s by %s needs an approval now; make the call again to ask for one", a.tool, a.caller.Name)
	return refused
}

// isApproved reports whether an approval was for a call of this target.
func (a *rejudged) isApproved(target *rules.Target) bool {
	return a.approved != nil && a.approved.Same(target)
}
