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
		header: []string{"call", "over", "p50 before", "p50 now", "p50", "CPU before", "CPU now", "CPU", "CPU of pairs", "own", "target", "verdict"},
		note: "Both builds serve the same tools and answer the same client in turns. CPU is that of the server and of what answers, for each call; " +
			"\"own\" is the ratio of the servers' parts. " + b.ofPairs(),
	}
	for _, over := range []string{withSession.name, canBeAsked.name, stateless.name, "stdio"} {
		if err := b.compareBuilds(ctx, &t, over, toolsDir); err != nil {
			return nil, err
		}
	}
	return []table{t}, nil
}

// build is a build that serves a capsule and simple tools, each with a server.
type build struct {
	capsule *contender
	simple  *front
}

func (b *build) close() {
	b.capsule.close()
	b.simple.close()
}

// compareBuilds adds the cells of one transport: of a capsule, then of simple tools.
func (b *bench) compareBuilds(ctx context.Context, t *table, over, toolsDir string) error {
	builds := pairs[*build]{b.scale.pairs, func(ctx context.Context, which int) (*build, func(), error) {
		orla := []string{b.before, b.orla}[which]
		c, err := b.openBuild(ctx, orla, over, toolsDir)
		if err != nil {
			return nil, nil, err
		}
		f, err := b.openBuildFront(ctx, orla, over)
		if err != nil {
			c.close()
			return nil, nil, err
		}
		both := &build{c, f}
		return both, both.close, nil
	}}
	var all []job[*build]
	for _, p := range b.scale.payloads {
		for _, inFlight := range b.scale.capsuleInFlight {
			all = append(all, job[*build]{
				fmt.Sprintf("capsule, %s, %d", p, inFlight), beforeRounds * b.scale.capsuleCell, inFlight,
				func(of *build) subject { return of.capsule.subject(p) },
			})
		}
	}
	for _, p := range b.programs {
		for _, inFlight := range b.scale.inFlight {
			if p.name == "python" && inFlight > mostPythons {
				continue
			}
			all = append(all, job[*build]{fmt.Sprintf("%s, %d", p.what, inFlight), b.scale.cell, inFlight, func(of *build) subject {
				f := of.simple
				return subject{
					name: f.name,
					load: func(n, inFlight int) ([]time.Duration, error) { return f.load(p.name, n, inFlight) },
					cpu:  func() (cpu, error) { return cpuOf(f.server.pid()) },
				}
			}})
		}
	}
	return addBuilds(ctx, b, t, over, builds, all)
}

// addBuilds measures what builds do and adds a row for each.
func addBuilds[S any](ctx context.Context, b *bench, t *table, over string, builds pairs[S], all []job[S]) error {
	sums, err := builds.compare(ctx, all)
	if err != nil {
		return fmt.Errorf("over %s: %w", over, err)
	}
	for i, sum := range sums {
		byCPU, w := sum.byCPU, all[i:i+1]
		cell := w[0].what
		if b.most > 0 && byCPU.median > b.most {
			if byCPU, err = again(ctx, byCPU, b.most, builds, w); err != nil {
				return fmt.Errorf("over %s: %w", over, err)
			}
		}
		if b.most > 0 && byCPU.median > b.most {
			b.slower = append(b.slower, fmt.Sprintf("%s over %s: %s", cell, over, times(byCPU.median)))
		}
		inTime := check{"p50", sum.ratio.median, maxToBefore}
		if w[0].inFlight > 1 {
			inTime = check{"each", sum.pace.median, maxToBefore} // as in measureCalls
		}
		t.add(cell, over, micros(sum.p50[0]), micros(sum.p50[1]), times(inTime.got), micros(sum.cpu[0]), micros(sum.cpu[1]), times(byCPU.median),
			byCPU.ofRatio(), times(sum.own.median), "≤ "+times(maxToBefore), verdict(inTime, check{"CPU", byCPU.median, maxToBefore}))
	}
	return nil
}

// again compares the CPU of two builds up to twice more, while the ratio is above what it may be, and returns the
// least: on a busy machine one comparison in many is wrong, and three of the same call hardly ever.
func again[S any](ctx context.Context, first spread, most float64, builds pairs[S], one []job[S]) (spread, error) {
	least := first
	for range 2 {
		if least.median <= most {
			break
		}
		sums, err := builds.compare(ctx, one)
		if err != nil {
			return least, err
		}
		if next := sums[0].byCPU; next.median < least.median {
			least = next
		}
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
