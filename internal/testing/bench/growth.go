package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// maxManyStart is how long Orla may take to serve as many tools as scale.growth says.
	maxManyStart = 500 * time.Millisecond
	// maxManyReload is how long a reload of so many may take when one has changed.
	maxManyReload = 100 * time.Millisecond
	// maxTwice is how much more processor time twice as many may take (SPEC S1).
	maxTwice = 3
)

// shape is a way to keep many tools in a folder.
type shape struct {
	name string
	make func(b *bench, n int) (dir string, err error)
	file func(dir string, i int) string // that describes the ith tool
	text func(said int) string          // what the file has in it, with another description for each number
}

var shapes = []shape{
	{
		"scripts in one folder", (*bench).manyTools,
		func(dir string, i int) string { return filepath.Join(dir, toolName(i)) },
		func(said int) string { return fmt.Sprintf(describedTool, said) },
	},
	{
		"packages, a folder each", (*bench).manyPackages,
		func(dir string, i int) string { return filepath.Join(dir, toolName(i), "tool.yaml") },
		func(said int) string { return fmt.Sprintf(describedPackage, toolName(0), said) },
	},
}

// describedPackage is the same description as that of a script, for a package.
const describedPackage = `name: %s
version: 1.0.0
description: Reads its arguments and prints them again, as number %d of many that do the same.
entrypoint: run.sh
mcp:
  input_schema:
    type: object
    properties:
      text: {type: string, description: What to print.}
      count: {type: integer, description: How often to print it.}
`

// manyPackages makes a folder of n packages, each of a small script and its description.
func (b *bench) manyPackages(n int) (string, error) {
	dir := filepath.Join(b.dir, fmt.Sprintf("packages-%d", n))
	for i := range n {
		one := filepath.Join(dir, toolName(i))
		if err := os.MkdirAll(one, 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(one, "tool.yaml"), fmt.Appendf(nil, describedPackage, toolName(i), i), 0o600); err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(one, "run.sh"), []byte("#!/bin/sh\ncat\n"), 0o755); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// grown is what so many tools cost.
type grown struct {
	start, startCPU   time.Duration
	reload, reloadCPU time.Duration
}

// measureGrowth tells what a start and a reload cost with many tools, and with twice as many.
func measureGrowth(ctx context.Context, b *bench) ([]table, error) {
	t := table{
		title:  "Starts and reloads with many tools (S1)",
		header: []string{"tools", "kept as", "start", "CPU", "to half", "reload, one changed", "CPU of it", "to half", "target", "verdict"},
		note: "A start lasts from exec until Orla listens. CPU is that of Orla's own process; that of a start includes the watches, which are made after it. " +
			"A reload lasts as the log says, which leaves out the time until a change counts as whole. \"To half\" is the CPU to that of half as many tools. All are medians.",
	}
	for _, s := range shapes {
		var half grown
		for _, n := range []int{b.scale.growth, 2 * b.scale.growth} {
			now, err := b.grow(ctx, s, n)
			if err != nil {
				return nil, fmt.Errorf("%d tools, %s: %w", n, s.name, err)
			}
			var toHalf, reloadToHalf, target string
			var checks []check
			if n == b.scale.growth {
				target = fmt.Sprintf("≤ %s, %s", millis(maxManyStart), millis(maxManyReload))
				checks = []check{{"start", float64(now.start), float64(maxManyStart)}, {"reload", float64(now.reload), float64(maxManyReload)}}
			} else {
				started, reloaded := quotient(now.startCPU, half.startCPU), quotient(now.reloadCPU, half.reloadCPU)
				toHalf, reloadToHalf, target = times(started), times(reloaded), "≤ "+times(maxTwice)
				checks = []check{{"start", started, maxTwice}, {"reload", reloaded, maxTwice}}
			}
			t.add(fmt.Sprint(n), s.name, millis(now.start), millis(now.startCPU), toHalf, millis(now.reload), millis(now.reloadCPU), reloadToHalf, target, verdict(checks...))
			half = now
		}
	}
	return []table{t}, nil
}

// grow measures starts and reloads of n tools.
func (b *bench) grow(ctx context.Context, s shape, n int) (grown, error) {
	dir, err := s.make(b, n)
	if err != nil {
		return grown{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is below the temporary folder
	if err := rest(ctx, b.scale.aging); err != nil {
		return grown{}, err
	}
	var starts, startCPUs, reloads, reloadCPUs []time.Duration
	for range b.scale.manyStarts {
		took, used, err := b.startMany(ctx, dir)
		if err != nil {
			return grown{}, err
		}
		starts, startCPUs = append(starts, took), append(startCPUs, used)
	}
	o, err := b.startOrla(ctx, dir)
	if err != nil {
		return grown{}, err
	}
	defer o.stop()
	for round := range b.scale.manyStarts {
		if err := rest(ctx, b.scale.aging); err != nil {
			return grown{}, err
		}
		took, used, err := b.saveOne(ctx, o, s.file(dir, 0), s.text(n+round))
		if err != nil {
			return grown{}, err
		}
		reloads, reloadCPUs = append(reloads, took), append(reloadCPUs, used)
	}
	return grown{median(starts), median(startCPUs), median(reloads), median(reloadCPUs)}, nil
}

// startMany starts Orla, and looks at what it has used when it rests.
func (b *bench) startMany(ctx context.Context, dir string) (took, used time.Duration, err error) {
	o, err := b.startOrla(ctx, dir)
	if err != nil {
		return 0, 0, err
	}
	defer o.stop()
	took = time.Since(o.began)
	if err := rest(ctx, b.scale.aging); err != nil {
		return 0, 0, err
	}
	c, err := cpuOf(o.pid())
	return took, c.own, err
}

// saveOne changes one tool, and tells what the reload took.
func (b *bench) saveOne(ctx context.Context, o *server, file, text string) (took, used time.Duration, err error) {
	from, err := o.logSize()
	if err != nil {
		return 0, 0, err
	}
	before, err := cpuOf(o.pid())
	if err != nil {
		return 0, 0, err
	}
	if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
		return 0, 0, err
	}
	line, err := o.await(ctx, "reload", from)
	if err != nil {
		return 0, 0, err
	}
	after, err := cpuOf(o.pid())
	return time.Duration(line.Duration) * time.Millisecond, after.own - before.own, err
}
