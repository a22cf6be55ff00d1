package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// maxAudit is how much more CPU a call over HTTP may cost with an audit log (SPEC-TOOLS 8.8).
const maxAudit = 1.02

// auditRounds is how many times the time of a cell is spent on it, as for beforeRounds.
const auditRounds = 12

// measureAudit compares calls of a capsule over HTTP of an Orla that writes an audit log with those of one that
// writes none.
func measureAudit(ctx context.Context, b *bench) ([]table, error) {
	toolsDir := filepath.Join(b.dir, "audited")
	if err := b.capsulePackage(toolsDir, capsuleTool, ""); err != nil {
		return nil, err
	}
	t := table{
		title:  "A call with an audit log (8.8)",
		header: []string{"call", "over", "p50 without", "p50 with", "p50", "CPU without", "CPU with", "CPU", "CPU of pairs", "own", "target", "verdict"},
		note: "Both servers have the same build and the same capsule, and answer the same client in turns. CPU is that of the server and of the capsule, for each call; " +
			"\"own\" is the ratio of the servers' parts. Larger arguments cost what their SHA-256 costs in addition. " + b.ofPairs(),
	}
	for _, e := range []era{withSession, stateless} {
		if err := b.compareAudit(ctx, &t, e, toolsDir); err != nil {
			return nil, err
		}
	}
	return []table{t}, nil
}

// compareAudit adds the cells of one era.
func (b *bench) compareAudit(ctx context.Context, t *table, e era, toolsDir string) error {
	state := filepath.Join(b.dir, "audit-state")
	with := []string{"env", "ORLA_AUDIT_LOG=" + filepath.Join(state, "audit.log"), "ORLA_STATE_DIR=" + state}
	all := b.capsuleJobs()
	sums, err := b.contenders(e, func(which int) ([]string, error) {
		if which == 0 {
			return b.orlaHTTP(toolsDir), nil
		}
		return slices.Concat(with, b.orlaHTTP(toolsDir)), os.RemoveAll(state)
	}).compare(ctx, all)
	if err != nil {
		return err
	}
	for i, sum := range sums {
		t.add(all[i].what, e.name, micros(sum.p50[0]), micros(sum.p50[1]), times(sum.ratio.median),
			micros(sum.cpu[0]), micros(sum.cpu[1]), times(sum.byCPU.median), sum.byCPU.ofRatio(), times(sum.own.median),
			"≤ "+times(maxAudit), verdict(check{"CPU", sum.byCPU.median, maxAudit}))
	}
	return nil
}

// contenders are pairs of servers with a capsule, whose command lines a function makes. With -same, both are the first
// one.
func (b *bench) contenders(e era, argv func(which int) ([]string, error)) pairs[*contender] {
	return pairs[*contender]{b.scale.pairs, func(ctx context.Context, which int) (*contender, func(), error) {
		if b.same {
			which = 0
		}
		line, err := argv(which)
		if err != nil {
			return nil, nil, err
		}
		s, err := b.start(ctx, line...)
		if err != nil {
			return nil, nil, err
		}
		c, err := openHTTPContender(ctx, "Orla", s, e, slices.Max(b.scale.capsuleInFlight))
		if err != nil {
			return nil, nil, err
		}
		return c, c.close, nil
	}}
}

// capsuleJobs is small calls of the capsule.
func (b *bench) capsuleJobs() (all []job[*contender]) {
	p := b.scale.payloads[0]
	for _, inFlight := range b.scale.capsuleInFlight {
		all = append(all, job[*contender]{
			fmt.Sprintf("capsule, %s, %d", p, inFlight), auditRounds * b.scale.capsuleCell, inFlight,
			func(c *contender) subject { return c.subject(p) },
		})
	}
	return all
}

// ofPairs says what numbers over pairs are.
func (b *bench) ofPairs() string {
	text := fmt.Sprintf("Each number is the median over %d pairs of servers, which are started one after the other, "+
		"and \"of pairs\" is the least and the most: two servers that are the same differ, too.", b.scale.pairs)
	if b.same {
		text += " Here both servers of a pair are the same (`-same`), so that each difference is one of the measurement."
	}
	return text
}
