package governance_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// offering returns the catalog of a provider that has been found, and offers tools that only it knows.
func offering(t *testing.T, names ...string) *supervisor.Catalog {
	t.Helper()
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return several(names), nil }},
		Log:   slog.New(slog.DiscardHandler),
	})
	if diff := s.Apply([]manifest.Tool{{Name: "box", Kind: manifest.Capsule}}); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
	return s.Catalog()
}

// several is a provider of tools with these names.
type several []string

func (s several) Tools() (all []*mcp.Tool) {
	for _, name := range s {
		all = append(all, &mcp.Tool{Name: name, InputSchema: map[string]any{"type": "object"}})
	}
	return all
}

func (several) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	return one{}.Call(ctx, call)
}

// SPEC-TOOLS 8.3: what a rule named once it names also after a restart, so that a capsule that drops a tool does not
// close the gate for everybody. A rule that has never named anything closes it, with or without a memory.
func TestT83WhatRulesNamedIsKnownAtTheNextStart(t *testing.T) {
	memory := filepath.Join(t.TempDir(), "rules", "x.json")
	cfg := configured(t)
	start := func(memory, rule string, offers ...string) bool {
		g := governance.Gate{Memory: memory}
		all := found(blocks(rule))
		all.Tools = []manifest.Tool{{Name: "box", Kind: manifest.Capsule}}
		g.Set(all, cfg)
		g.Listed(offering(t, offers...))
		return g.Denies()
	}
	if !start(memory, "wipe", "other") {
		t.Error("a rule that names nothing leaves the gate open")
	}
	if start(memory, "WIPE", "wipe", "other") {
		t.Error("a rule that names a tool closes the gate")
	}
	if start(memory, "wipe", "other") {
		t.Error("a capsule closes the gate after a restart, since it has dropped a tool")
	}
	if !start("", "wipe", "other") || !start(memory+"2", "wipe", "other") {
		t.Error("without what was known, a rule that names nothing leaves the gate open")
	}
	if !start(memory, "whipe", "wipe", "other") {
		t.Error("a rule with another name leaves the gate open")
	}
	if !start(memory, "wipe", "other") {
		t.Error("a name is remembered that no rule had any more")
	}
	if start(memory, "wipe", "wipe") {
		t.Error("a rule that names a tool closes the gate")
	}
	if err := os.WriteFile(memory, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !start(memory, "wipe", "other") || start(memory, "wipe", "wipe") || start(memory, "wipe", "other") {
		t.Error("a file that cannot be read is not replaced")
	}
	if info, err := os.Stat(memory); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// SPEC-TOOLS 8.3: a rule that names nothing is one line in the log: the gate says nothing of those that the search has found.
func TestT83ARuleThatNamesNothingIsLoggedOnce(t *testing.T) {
	cfg := configured(t)
	for name, capsule := range map[string]bool{"the search says it": false, "a capsule might have had it": true} {
		var log bytes.Buffer
		g := governance.Gate{Log: slog.New(slog.NewTextHandler(&log, nil))}
		all := found(blocks("wipe"), "other")
		if capsule {
			all.Tools = append(all.Tools, manifest.Tool{Name: "box", Kind: manifest.Capsule})
		}
		governance.Check(all, cfg, nil)
		want := 1 - len(all.Problems)
		for range 3 {
			g.Set(all, cfg)
			g.Listed(offering(t, "other"))
		}
		if n := strings.Count(log.String(), "a rule names nothing"); n != want || !g.Denies() || capsule == (want == 0) {
			t.Errorf("%s: the gate says it %d times, want %d; %v", name, n, want, all.Problems)
		}
	}
}
