package governance_test

import (
	"errors"
	"strings"
	"testing"

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
// also while every call is denied. Rules that are gone deny nothing.
func TestT86WhatACallThatWaitsIsToldOfNewRules(t *testing.T) {
	var g governance.Gate
	cfg := configured(t, config.CallerConfig{Name: "ann"})
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
