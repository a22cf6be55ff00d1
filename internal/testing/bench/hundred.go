package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

const (
	// maxPerCapsule is the memory of its own that Orla may need for a capsule (SPEC L4).
	maxPerCapsule = 150 << 10
	// maxCrowd is how much longer a start of many capsules may take than the
	// slowest alone and what the cores need (SPEC L5): nothing, but for what
	// the cores do not do in step.
	maxCrowd = 1.25
)

// crowd is one start of many capsules.
type crowd struct {
	took     time.Duration // until the last was ready
	cpu      time.Duration // of all processes until then
	starters time.Duration // the part of the one that starts them
}

// measureHundred measures what many capsules cost: their start, and their rest.
func measureHundred(ctx context.Context, b *bench) ([]table, error) {
	n := b.scale.capsules
	load := fmt.Sprintf("-load=%s", b.scale.loading)
	toolsDir, none := filepath.Join(b.dir, "hundred"), filepath.Join(b.dir, "none")
	if err := os.MkdirAll(none, 0o755); err != nil {
		return nil, err
	}
	for i := range n {
		if err := b.capsulePackage(toolsDir, toolName(i), fmt.Sprintf(", args: [%s]", load)); err != nil {
			return nil, err
		}
	}
	var alone []time.Duration
	var bare, orla []crowd
	for range b.scale.crowds {
		one, err := b.bareCrowd(ctx, 1, load)
		if err != nil {
			return nil, err
		}
		all, err := b.bareCrowd(ctx, n, load)
		if err != nil {
			return nil, err
		}
		s, served, err := b.orlaCrowd(ctx, toolsDir, n)
		if err != nil {
			return nil, err
		}
		s.stop()
		alone, bare, orla = append(alone, one.took), append(bare, all), append(orla, served)
	}
	rested, err := b.restOfMany(ctx, toolsDir, none)
	if err != nil {
		return nil, err
	}
	return append([]table{tabulateCrowds(n, b.scale.loading, median(alone), bare, orla)}, rested...), nil
}

// bareCrowd starts n capsules by os/exec, all at once.
func (b *bench) bareCrowd(ctx context.Context, n int, args ...string) (c crowd, err error) {
	before, err := ownCPU()
	if err != nil {
		return c, err
	}
	processes := make([]*bareProcess, n)
	errs := make(chan error, n)
	began := time.Now()
	for i := range processes {
		go func() {
			p, err := startBare(ctx, b.capsule, args...)
			processes[i] = p
			errs <- err
		}()
	}
	for range n {
		if failed := <-errs; failed != nil {
			err = failed
		}
	}
	c.took = time.Since(began)
	after, usageErr := ownCPU()
	if err == nil {
		err = usageErr
	}
	c.starters = after.since(before).own
	c.cpu = c.starters
	for _, p := range processes {
		if p == nil {
			continue
		}
		if failed := p.end(); failed != nil {
			err = failed
		}
		c.cpu += p.used().own
	}
	return c, err
}

// orlaCrowd starts Orla with n capsules and waits until all are ready.
func (b *bench) orlaCrowd(ctx context.Context, toolsDir string, n int) (s *server, c crowd, err error) {
	if s, err = b.startOrla(ctx, toolsDir); err != nil {
		return nil, c, err
	}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	var first time.Time
	ready, err := s.awaitAll(ctx, fmt.Sprintf("READY of %d capsules", n), 0, n, func(l logLine) bool {
		if l.To == "STARTING" && first.IsZero() {
			first = l.Time
		}
		return l.To == "READY"
	})
	if err != nil {
		return nil, c, err
	}
	c.took = ready[n-1].Time.Sub(first)
	own, err := cpuOf(s.pid())
	if err != nil {
		return nil, c, err
	}
	c.starters = own.own
	c.cpu = c.starters
	for _, l := range ready {
		used, err := cpuOf(l.Pid)
		if err != nil {
			return nil, c, err
		}
		c.cpu += used.own
	}
	return s, c, nil
}

func tabulateCrowds(n int, loading, alone time.Duration, bare, orla []crowd) table {
	t := table{
		title:  fmt.Sprintf("%d capsules at once (L5)", n),
		header: []string{"started by", "starts", "slowest alone", "CPU, all", "CPU, own", "on the cores", "all ready after", "to alone + cores", "target", "verdict"},
		note: fmt.Sprintf("Each is busy with nothing for %s before its hello. \"On the cores\" is the CPU time of the one that starts and of all that it "+
			"starts, divided by the %d cores.", loading, runtime.NumCPU()),
	}
	for _, row := range []struct {
		name   string
		starts []crowd
		most   float64 // 0 for none
	}{{"os/exec", bare, 0}, {"Orla", orla, maxCrowd}} {
		used := middle(row.starts, func(_ int, c crowd) time.Duration { return c.cpu })
		own := middle(row.starts, func(_ int, c crowd) time.Duration { return c.starters })
		took := middle(row.starts, func(_ int, c crowd) time.Duration { return c.took })
		onCores := used / time.Duration(runtime.NumCPU())
		ratio := quotient(took, alone+onCores)
		target, met := "", ""
		if row.most > 0 {
			target, met = "≤ "+times(row.most), verdict(check{"", ratio, row.most})
		}
		t.add(row.name, fmt.Sprint(len(row.starts)), millis(alone), millis(used), millis(own), millis(onCores), millis(took), times(ratio), target, met)
	}
	return t
}

// restOfMany looks at an Orla with many capsules beside one with none.
func (b *bench) restOfMany(ctx context.Context, toolsDir, none string) ([]table, error) {
	n := b.scale.capsules
	empty, err := b.startOrla(ctx, none)
	if err != nil {
		return nil, err
	}
	defer empty.stop()
	s, _, err := b.orlaCrowd(ctx, toolsDir, n)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if err := rest(ctx, b.scale.settle); err != nil {
		return nil, err
	}
	base, err := look(ctx, empty, "no capsule")
	if err != nil {
		return nil, err
	}
	held, err := look(ctx, s, fmt.Sprintf("%d capsules", n))
	if err != nil {
		return nil, err
	}
	quiet, err := watchRest(ctx, s, b.scale.idleCapsules)
	if err != nil {
		return nil, err
	}
	quiet.when = held.when
	if err := callEach(ctx, s, n); err != nil {
		return nil, err
	}
	if err := rest(ctx, b.scale.settle); err != nil {
		return nil, err
	}
	called, err := look(ctx, s, "each called ten times")
	if err != nil {
		return nil, err
	}
	return []table{
		tabulateMany(n, []holding{base, held, called}),
		tabulateRest(fmt.Sprintf("Idle for %s with %d capsules (L4)", b.scale.idleCapsules, n), []resting{quiet}, b.scale.idleCapsules),
	}, nil
}

// callEach calls every capsule ten times.
func callEach(ctx context.Context, s *server, n int) error {
	c, err := connect(ctx, s.host, withSession)
	if err != nil {
		return err
	}
	defer c.close()
	p := payload{size: littleText}
	for i := range n {
		request := c.named("tools/call", toolName(i), fmt.Sprintf(`"name":%q,"arguments":{"size":%d}`, toolName(i), p.size))
		for range 10 {
			a, err := c.roundTrip(request)
			if err != nil {
				return err
			}
			if err := p.check(a.body); err != nil {
				return err
			}
		}
	}
	return nil
}

// tabulateMany compares what was held with what is held for no capsule.
func tabulateMany(n int, held []holding) table {
	t := table{
		title:  "Orla's own memory for its capsules (L4)",
		header: []string{"Orla", "RSS", "PSS", "RSS per capsule", "PSS per capsule", "descriptors", "goroutines", "target", "verdict"},
		note:   "The guard's memory is in neither. A capsule's own is its own.",
	}
	none := held[0].orla
	for i, h := range held {
		each, eachPSS, target, met := "", "", "", ""
		if i > 0 {
			more := (h.orla.rss - none.rss) / int64(n)
			each = fmt.Sprintf("%d KiB", more>>10)
			eachPSS = fmt.Sprintf("%d KiB", (h.orla.pss-none.pss)/int64(n)>>10)
			target, met = fmt.Sprintf("≤ %d KiB", maxPerCapsule>>10), verdict(check{"RSS", float64(more), maxPerCapsule})
		}
		t.add(h.when, mebibytes(h.orla.rss), mebibytes(h.orla.pss), each, eachPSS, fmt.Sprint(h.descriptors), fmt.Sprint(h.goroutines), target, met)
	}
	return t
}
