package governance_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// asks is a rule by which calls of a tool need an approval.
func asks(tool string) manifest.Rules {
	at := manifest.Reference{Name: "q", At: "a.yaml:3:1"}
	return manifest.Rules{Permissions: []manifest.Permission{{
		Reference: at, Tool: manifest.Reference{Name: tool, At: at.At},
		Operations: []manifest.OperationRule{{Class: "*", Verdict: manifest.ApprovalRequired}},
	}}}
}

// SPEC-TOOLS 8.6: what the rules of now say of a call that waits: also that it would have to be approved first, and
// also while every call is denied. Rules that are gone deny nothing. The first rules are for calls that wait as others are.
func TestT86WhatACallThatWaitsIsToldOfNewRules(t *testing.T) {
	t.Run("an entry in callers", func(t *testing.T) { judgesWaiting(t, configured(t, config.CallerConfig{Name: "ann"})) })
	t.Run("no rules and no callers", func(t *testing.T) { judgesWaiting(t, configured(t)) })
}

func judgesWaiting(t *testing.T, cfg *config.Loaded) {
	t.Helper()
	var g governance.Gate
	target := rules.NewTarget([]string{"a"}, nil, nil, nil)
	g.Set(found(manifest.Rules{}, "a", "b"), cfg)
	admitted, err := g.Admit(t.Context(), peer.Call{Caller: "ann", Tool: "a"}, target)
	if err != nil || admitted.Judge == nil {
		t.Fatalf("%v, %v", admitted, err)
	}
	ctx := rejudge.With(t.Context(), admitted.Judge, target)
	broken := found(manifest.Rules{}, "a", "b")
	broken.Problems = []manifest.Problem{{Path: "tools/p.yaml", Severity: manifest.Fault, Denies: true, Err: errors.New("x")}}
	for _, c := range []struct {
		name  string
		found *manifest.Result
		want  string
	}{
		{"the same rules", found(manifest.Rules{}, "a", "b"), ""},
		{"another tool", found(blocks("b"), "a", "b"), ""},
		{"the tool", found(blocks("a"), "a", "b"), "ann may not call a"},
		{"an approval", found(asks("a"), "a", "b"), "needs an approval now"},
		{"a document that cannot be read", broken, "every call is denied"},
		{"no rules", found(manifest.Rules{}, "a", "b"), ""},
	} {
		before := admitted.Judge.Until()
		changed := g.Rules()
		g.Set(c.found, cfg)
		if before.Err() == nil && g.Rules() != changed {
			t.Errorf("%s: nobody is told", c.name)
		}
		_, err := rejudge.Of(ctx, target)
		if (err == nil) != (c.want == "") || err != nil && (fault.CodeOf(err) != fault.PermissionDenied || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	g.Set(found(blocks("old"), "a", "b", "old"), cfg)
	if _, err := rejudge.Of(ctx, rules.NewTarget([]string{"a", "old"}, nil, nil, nil)); fault.CodeOf(err) != fault.PermissionDenied {
		t.Errorf("a successor with another name: %v", err)
	}
}

// SPEC-TOOLS 8.6, 8.7: rules that are away for a moment let no call through that waits for an approval.
func TestT87RulesThatAreAwayForAMomentLetNothingThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		first, second := d.calls(t.Context(), peer.Call{}), d.calls(t.Context(), peer.Call{Args: []byte(`{"a":1}`)})
		synctest.Wait()
		d.rule(manifest.Rules{})
		check(t, <-first, fault.NotReady, "it was not made")
		check(t, <-second, fault.NotReady, "it was not made")
		d.rule(wants())
		check(t, <-d.calls(t.Context(), peer.Call{}), fault.ApprovalPending, "")
	})
}

// SPEC-TOOLS 8.6, 8.7: a call that goes on while the rules change for a moment needs an approval under those of now.
func TestT87RulesThatChangeWhileACallGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		target := rules.NewTarget([]string{"a"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
		again := d.again(target)
		again.Place = func() error {
			d.rule(manifest.Rules{})
			d.rule(wants())
			return nil
		}
		call := peer.Call{Caller: "ann", Tool: "a"}
		admitted, err := d.Admit(t.Context(), call, target)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- admitted.Approve(t.Context(), &call, again) }()
		d.decide(true, "")
		if err := <-ended; fault.CodeOf(err) != fault.ApprovalPending {
			t.Errorf("it goes on with the approval of rules that were away: %v", err)
		}
	})
}

// SPEC-TOOLS 8.6, 8.7: a call that waits again is one that somebody has approved only when it has used the approval,
// and only for what was shown.
func TestT87ACallIsApprovedWhenItHasUsedItsApproval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		target := rules.NewTarget([]string{"a"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)
		call := peer.Call{Caller: "ann", Tool: "a"}
		admitted, err := d.Admit(t.Context(), call, target)
		if err != nil {
			t.Fatal(err)
		}
		if refused := admitted.Judge.May(target); refused == nil {
			t.Error("nobody has approved it, and it may go on")
		}
		go func() {
			synctest.Wait()
			d.decide(true, "")
		}()
		if err := admitted.Approve(t.Context(), &call, d.again(target)); err != nil {
			t.Fatal(err)
		}
		if refused := admitted.Judge.May(target); refused != nil {
			t.Errorf("it has used its approval: %v", refused.Err)
		}
		for what, other := range map[string]*rules.Target{
			"what it does":   rules.NewTarget([]string{"a"}, nil, []manifest.OperationClass{manifest.ClassDelete}, nil),
			"what it says":   defined(rules.NewTarget([]string{"a"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil)),
			"who answers it": rules.NewTarget([]string{"a", "other"}, nil, []manifest.OperationClass{manifest.ClassRead}, nil),
		} {
			if refused := admitted.Judge.May(other); refused == nil {
				t.Errorf("%s is another now, and it may go on", what)
			}
		}
	})
}

// SPEC-TOOLS 8.7: an approval is bound to the task that a client names, and not to its session, which ends when the client
// starts again.
func TestT87AnApprovalIsForTheTaskThatTheClientNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t, wants())
		named := func(task string) peer.Call {
			return peer.Call{Task: task, Meta: []byte(`{"orloj.dev/task":"` + task + `"}`)}
		}
		check(t, <-d.calls(t.Context(), peer.Call{Task: "session-1"}), fault.ApprovalPending, "")
		if r := d.record(); r.Task != "" {
			t.Errorf("it is bound to %q", r.Task)
		}
		d.decide(true, "")
		check(t, <-d.calls(t.Context(), named("session-1")), fault.ApprovalPending, "")
		d.decide(false, "")
		check(t, <-d.calls(t.Context(), peer.Call{Task: "session-2"}), "", "")
		check(t, <-d.calls(t.Context(), named("t1")), fault.ApprovalPending, "")
		d.decide(true, "")
		check(t, <-d.calls(t.Context(), named("t2")), fault.ApprovalPending, "")
		check(t, <-d.calls(t.Context(), named("t1")), "", "")
	})
}
