package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// maxRules is how much more processor time a call may cost with rules (SPEC-TOOLS 8.3).
	maxRules = 3 * time.Microsecond
	// toolsOfRule is how many tools there are for each rule.
	toolsOfRule = 10
)

// measureRules compares calls of a capsule over HTTP of an Orla with rules with those of one that has none. Both have
// the same tools.
func measureRules(ctx context.Context, b *bench) ([]table, error) {
	t := table{
		title:  "A call with rules (8.3)",
		header: []string{"call", "over", "p50 without", "p50 with", "p50", "CPU without", "CPU with", "more CPU", "target", "verdict"},
		note: fmt.Sprintf("Both servers have the same build, the same capsule and %d more tools, and answer the same client in turns. One of them has %d rules. "+
			"CPU is that of the server and of the capsule, for each call; \"more CPU\" is the median over rounds, since what a server does now and then is not what a call costs. `BenchmarkT83Gate` measures the gate alone, also without rules.", toolsOfRule*b.scale.rules, b.scale.rules),
	}
	var both []*contender
	defer func() {
		for _, c := range both {
			c.close()
		}
	}()
	for _, ruled := range []bool{false, true} {
		dir := filepath.Join(b.dir, fmt.Sprintf("ruled-%t", ruled))
		if err := b.ruledTools(dir, ruled); err != nil {
			return nil, err
		}
		s, err := b.start(ctx, b.orlaHTTP(dir)...)
		if err != nil {
			return nil, err
		}
		c, err := openHTTPContender(ctx, "Orla", s, stateless, slices.Max(b.scale.capsuleInFlight))
		if err != nil {
			return nil, err
		}
		both = append(both, c)
	}
	p := b.scale.payloads[0]
	for _, inFlight := range b.scale.capsuleInFlight {
		results, err := compare(ctx, auditRounds*b.scale.capsuleCell, 2*inFlight, inFlight, []subject{both[0].subject(p), both[1].subject(p)})
		if err != nil {
			return nil, fmt.Errorf("%s, %d in flight: %w", p, inFlight, err)
		}
		without, ruled := results[0], results[1]
		t.add(fmt.Sprintf("capsule, %s, %d", p, inFlight), stateless.name, micros(without.p50), micros(ruled.p50), times(ruled.ratio),
			micros(without.cpu.total()), micros(ruled.cpu.total()), precise(ruled.more), "≤ "+micros(maxRules), verdict(check{"CPU", float64(ruled.more), float64(maxRules)}))
	}
	return []table{t}, nil
}

// ruledTools writes a folder with the capsule and the other tools, and the rules if wanted.
func (b *bench) ruledTools(dir string, rules bool) error {
	if err := b.capsulePackage(dir, capsuleTool, ""); err != nil {
		return err
	}
	var tools, documents strings.Builder
	for i := range toolsOfRule * b.scale.rules {
		fmt.Fprintf(&tools, "---\napiVersion: orloj.dev/v1\nkind: Tool\nmetadata: {name: tool%d}\nspec: {type: http, description: A tool., endpoint: 'http://127.0.0.1:1/'}\n", i)
		if i < b.scale.rules {
			fmt.Fprintf(&documents, "---\napiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: tool%d}\nspec: {required_permissions: ['tool:tool%d:invoke'], operation_rules: [{verdict: allow}]}\n", i, i)
		}
		if i%100 == 99 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("tools%d.yaml", i)), []byte(tools.String()), 0o600); err != nil {
				return err
			}
			tools.Reset()
		}
	}
	if !rules {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(documents.String()), 0o600); err != nil { // with as many documents as a file may have
		return err
	}
	its := fmt.Sprintf("apiVersion: orloj.dev/v1\nkind: ToolPermission\nmetadata: {name: %s}\nspec: {operation_rules: [{operation_class: delete, verdict: allow}]}\n", capsuleTool)
	return os.WriteFile(filepath.Join(dir, "rule.yaml"), []byte(its), 0o600)
}
