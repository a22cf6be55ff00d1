package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// maxAudit is how much more CPU a call over HTTP may cost with an audit log (SPEC-TOOLS 8.8).
const maxAudit = 1.02

// auditRounds is how many times the time of a cell is spent on it, as for beforeRounds.
const auditRounds = 8

// measureAudit compares calls of a capsule over HTTP of an Orla that writes an audit log with those of one that
// writes none.
func measureAudit(ctx context.Context, b *bench) ([]table, error) {
	toolsDir := filepath.Join(b.dir, "audited")
	if err := b.capsulePackage(toolsDir, capsuleTool, ""); err != nil {
		return nil, err
	}
	t := table{
		title:  "A call with an audit log (8.8)",
		header: []string{"call", "over", "p50 without", "p50 with", "p50", "CPU without", "CPU with", "CPU", "own", "target", "verdict"},
		note: "Both servers have the same build and the same capsule, and answer the same client in turns. CPU is that of the server and of the capsule, for each call; " +
			"\"own\" is the ratio of the servers' parts. Larger arguments cost what their SHA-256 costs in addition.",
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
	state := filepath.Join(b.dir, "audit-"+e.name)
	with := []string{"env", "ORLA_AUDIT_LOG=" + filepath.Join(state, "audit.log"), "ORLA_STATE_DIR=" + state}
	var both []*contender
	defer func() {
		for _, c := range both {
			c.close()
		}
	}()
	for _, before := range [][]string{nil, with} {
		s, err := b.start(ctx, slices.Concat(before, b.orlaHTTP(toolsDir))...)
		if err != nil {
			return err
		}
		c, err := openHTTPContender(ctx, "Orla", s, e, slices.Max(b.scale.capsuleInFlight))
		if err != nil {
			return err
		}
		both = append(both, c)
	}
	p := b.scale.payloads[0]
	for _, inFlight := range b.scale.capsuleInFlight {
		results, err := compare(ctx, auditRounds*b.scale.capsuleCell, 2*inFlight, inFlight, []subject{both[0].subject(p), both[1].subject(p)})
		if err != nil {
			return fmt.Errorf("%s, %d in flight: %w", p, inFlight, err)
		}
		without, audited := results[0], results[1]
		byCPU := quotient(audited.cpu.total(), without.cpu.total())
		t.add(fmt.Sprintf("capsule, %s, %d", p, inFlight), e.name, micros(without.p50), micros(audited.p50), times(audited.ratio),
			micros(without.cpu.total()), micros(audited.cpu.total()), times(byCPU), times(quotient(audited.cpu.own, without.cpu.own)),
			"≤ "+times(maxAudit), verdict(check{"CPU", byCPU, maxAudit}))
	}
	return nil
}
