package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxToBefore is how much more a call may cost than it did in the build that -before names.
const maxToBefore = 1.02

// beforeRounds is how many times the time of a cell is spent on it: a difference of
// 2 % needs more rounds than a ratio of two programs does.
const beforeRounds = 3

// measureBefore compares calls of this build with those of an older one, over each
// transport (SPEC L1). It measures nothing without an older build.
func measureBefore(ctx context.Context, b *bench) ([]table, error) {
	if b.before == "" {
		return nil, nil
	}
	toolsDir := filepath.Join(b.dir, "before")
	if err := b.capsulePackage(toolsDir, capsuleTool, ""); err != nil {
		return nil, err
	}
	t := table{
		title:  "A call against an older build (L1)",
		header: []string{"call", "over", "p50 before", "p50 now", "p50", "CPU before", "CPU now", "CPU", "own", "target", "verdict"},
		note: "Both builds serve the same tools and answer the same client in turns. CPU is that of the server and of what answers, for each call; " +
			"\"own\" is the ratio of the servers' parts.",
	}
	for _, over := range []string{withSession.name, canBeAsked.name, stateless.name, "stdio"} {
		if err := b.compareBuilds(ctx, &t, over, toolsDir); err != nil {
			return nil, err
		}
	}
	return []table{t}, nil
}

// compareBuilds adds the cells of one transport: of a capsule, then of simple tools.
func (b *bench) compareBuilds(ctx context.Context, t *table, over, toolsDir string) (err error) {
	var builds []*contender
	defer func() {
		for _, c := range builds {
			c.close()
		}
	}()
	var fronts []*front
	defer func() {
		for _, f := range fronts {
			f.close()
		}
	}()
	for _, orla := range []string{b.before, b.orla} {
		c, err := b.openBuild(ctx, orla, over, toolsDir)
		if err != nil {
			return err
		}
		builds = append(builds, c)
		f, err := b.openBuildFront(ctx, orla, over)
		if err != nil {
			return err
		}
		fronts = append(fronts, f)
	}
	for _, p := range b.scale.payloads {
		for _, inFlight := range b.scale.capsuleInFlight {
			subjects := []subject{builds[0].subject(p), builds[1].subject(p)}
			cell := fmt.Sprintf("capsule, %s, %d", p, inFlight)
			if err := b.addBuilds(ctx, t, cell, over, beforeRounds*b.scale.capsuleCell, inFlight, subjects); err != nil {
				return err
			}
		}
	}
	for _, p := range b.programs {
		for _, inFlight := range b.scale.inFlight {
			if p.name == "python" && inFlight > mostPythons {
				continue
			}
			var subjects []subject
			for _, f := range fronts {
				subjects = append(subjects, subject{
					name: f.name,
					load: func(n, inFlight int) ([]time.Duration, error) { return f.load(p.name, n, inFlight) },
					cpu:  func() (cpu, error) { return cpuOf(f.server.pid()) },
				})
			}
			if err := b.addBuilds(ctx, t, fmt.Sprintf("%s, %d", p.what, inFlight), over, b.scale.cell, inFlight, subjects); err != nil {
				return err
			}
		}
	}
	return nil
}

// addBuilds measures one cell and adds its row.
func (b *bench) addBuilds(ctx context.Context, t *table, cell, over string, budget time.Duration, inFlight int, subjects []subject) error {
	results, err := compare(ctx, budget, 2*inFlight, inFlight, subjects)
	if err != nil {
		return fmt.Errorf("%s over %s: %w", cell, over, err)
	}
	older, now := results[0], results[1]
	byCPU := quotient(now.cpu.total(), older.cpu.total())
	if b.most > 0 && byCPU > b.most {
		if byCPU, err = b.again(ctx, byCPU, budget, inFlight, subjects); err != nil {
			return fmt.Errorf("%s over %s: %w", cell, over, err)
		}
	}
	if b.most > 0 && byCPU > b.most {
		b.slower = append(b.slower, fmt.Sprintf("%s over %s: %s", cell, over, times(byCPU)))
	}
	inTime := check{"p50", now.ratio, maxToBefore}
	if inFlight > 1 {
		inTime = check{"each", now.pace, maxToBefore} // as in measureCalls
	}
	t.add(cell, over, micros(older.p50), micros(now.p50), times(inTime.got), micros(older.cpu.total()), micros(now.cpu.total()), times(byCPU),
		times(quotient(now.cpu.own, older.cpu.own)), "≤ "+times(maxToBefore), verdict(inTime, check{"CPU", byCPU, maxToBefore}))
	return nil
}

// again compares the CPU of two builds up to twice more, while the ratio is above what it may be, and returns the
// least: on a busy machine one comparison in many is wrong, and three of the same call hardly ever.
func (b *bench) again(ctx context.Context, first float64, budget time.Duration, inFlight int, subjects []subject) (float64, error) {
	least := first
	for range 2 {
		if least <= b.most {
			break
		}
		results, err := compare(ctx, budget, 2*inFlight, inFlight, subjects)
		if err != nil {
			return 0, err
		}
		least = min(least, quotient(results[1].cpu.total(), results[0].cpu.total()))
	}
	return least, nil
}

// slowerError names the calls that take more CPU than they may.
type slowerError []string

func (e slowerError) Error() string {
	return "calls take more CPU than with the older build:\n  " + strings.Join(e, "\n  ")
}

// openBuild starts a build with a capsule behind a transport.
func (b *bench) openBuild(ctx context.Context, orla, over, toolsDir string) (*contender, error) {
	if over == "stdio" {
		s, err := b.startPiped(ctx, orla, "--stdio", "--tools-dir", toolsDir)
		if err != nil {
			return nil, err
		}
		return openPipeContender(orla, s)
	}
	s, err := b.start(ctx, append([]string{orla}, b.orlaHTTP(toolsDir)[1:]...)...)
	if err != nil {
		return nil, err
	}
	return openHTTPContender(ctx, orla, s, eraOf(over), slices.Max(b.scale.capsuleInFlight))
}

// openBuildFront starts a build with simple tools behind a transport.
func (b *bench) openBuildFront(ctx context.Context, orla, over string) (*front, error) {
	if over == "stdio" {
		s, err := b.startPiped(ctx, orla, "--stdio", "--tools-dir", b.toolsDir)
		if err != nil {
			return nil, err
		}
		c, err := connectStdio(s)
		if err != nil {
			s.stop()
			return nil, err
		}
		return &front{name: orla, server: s, load: c.calls, close: s.stop}, nil
	}
	s, err := b.start(ctx, append([]string{orla}, b.orlaHTTP(b.toolsDir)[1:]...)...)
	if err != nil {
		return nil, err
	}
	f, err := openHTTP(ctx, s, eraOf(over), slices.Max(b.scale.inFlight))
	if err != nil {
		s.stop()
		return nil, err
	}
	return f, nil
}

// eraOf returns the era with a name.
func eraOf(name string) era {
	for _, e := range []era{stateless, canBeAsked} {
		if e.name == name {
			return e
		}
	}
	return withSession
}

// errNoBefore says that there is nothing to compare with.
var errNoBefore = errors.New("-only before needs -before FILE, an older orla")
