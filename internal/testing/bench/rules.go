package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
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
		header: []string{"call", "over", "p50 without", "p50 with", "p50", "CPU without", "CPU with", "more CPU", "more CPU of pairs", "target", "verdict"},
		note: fmt.Sprintf("Both servers have the same build, the same capsule and %d more tools, and answer the same client in turns. One of them has %d rules. "+
			"CPU is that of the server and of the capsule, for each call; \"more CPU\" is the median over rounds, since what a server does now and then is not what a call costs. %s `BenchmarkT83Gate` measures the gate alone, also without rules.", toolsOfRule*b.scale.rules, b.scale.rules, b.ofPairs()),
	}
	var dirs [2]string
	for which := range dirs {
		ruled := which == 1
		dirs[which] = filepath.Join(b.dir, fmt.Sprintf("ruled-%t", ruled))
		if err := b.ruledTools(dirs[which], ruled); err != nil {
			return nil, err
		}
	}
	all := b.capsuleJobs()
	sums, err := b.contenders(stateless, func(which int) ([]string, error) { return b.orlaHTTP(dirs[which]), nil }).compare(ctx, all)
	if err != nil {
		return nil, err
	}
	for i, sum := range sums {
		t.add(all[i].what, stateless.name, micros(sum.p50[0]), micros(sum.p50[1]), times(sum.ratio.median), micros(sum.cpu[0]), micros(sum.cpu[1]),
			precise(time.Duration(sum.more.median)), sum.more.ofMicros(), "≤ "+micros(maxRules), verdict(check{"CPU", sum.more.median, float64(maxRules)}))
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
