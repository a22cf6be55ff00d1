package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// maxIdle is the memory that an idle Orla may hold (SPEC L4).
	maxIdle = 25 << 20
	// maxIdleCPU is what counts as nil, as a part of one core.
	maxIdleCPU = 0.001
	// maxLeft is how many descriptors and goroutines more may be there after
	// many calls: what the runtime keeps of its own accord.
	maxLeft = 3
)

// holding is what an Orla holds at one moment.
type holding struct {
	when        string
	orla, guard memory
	descriptors int
	goroutines  int
}

// resting is what an Orla uses while nothing happens.
type resting struct {
	when     string
	cpu      time.Duration
	switches int64
}

// measureMemory looks at an Orla before, after and long after many calls.
func measureMemory(ctx context.Context, b *bench) ([]table, error) {
	s, err := b.startOrla(ctx, b.toolsDir)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	inFlight := b.scale.sessions
	after := fmt.Sprintf("after %d calls", b.scale.calls)
	steps := []struct {
		when string
		do   func() error
	}{
		{"after the start", func() error { return nil }},
		{after, func() error { return callOften(ctx, s, b.programs[0].name, b.scale.calls, inFlight) }},
	}
	var held []holding
	var quiet []resting
	for _, step := range steps {
		if err := step.do(); err != nil {
			return nil, err
		}
		if err := rest(ctx, b.scale.settle); err != nil {
			return nil, err
		}
		h, err := look(ctx, s, step.when)
		if err != nil {
			return nil, err
		}
		r, err := watchRest(ctx, s, b.scale.idle)
		if err != nil {
			return nil, err
		}
		r.when = step.when
		held, quiet = append(held, h), append(quiet, r)
	}
	h, err := look(ctx, s, fmt.Sprintf("%s later", b.scale.idle))
	if err != nil {
		return nil, err
	}
	note := fmt.Sprintf("%d tools; the calls came %d at a time over as many sessions, whose clients left without ending them. "+
		"Each look is after %s of quiet. The target is for the RSS of Orla and for the PSS of both.", len(b.programs), inFlight, b.scale.settle)
	return []table{tabulateHeld(append(held, h), inFlight, note), tabulateRest(fmt.Sprintf("Idle for %s (L4)", b.scale.idle), quiet, b.scale.idle)}, nil
}

// tabulateHeld compares what was held with what was held at first. sessions
// are those that are open since then; each may keep one goroutine.
func tabulateHeld(held []holding, sessions int, note string) table {
	t := table{
		title:  "Memory, descriptors, goroutines (L4, F3)",
		header: []string{"Orla", "RSS", "PSS", "guard RSS", "guard PSS", "PSS of both", "descriptors", "goroutines", "target", "verdict"},
		note:   note,
	}
	fresh := held[0]
	for i, h := range held {
		both := h.orla.pss + h.guard.pss
		checks := []check{{"RSS", float64(h.orla.rss), maxIdle}, {"PSS", float64(both), maxIdle}}
		if i > 0 {
			checks = append(checks,
				check{"descriptors", float64(h.descriptors), float64(fresh.descriptors + maxLeft)},
				check{"goroutines", float64(h.goroutines), float64(fresh.goroutines + sessions + maxLeft)})
		}
		t.add(h.when, mebibytes(h.orla.rss), mebibytes(h.orla.pss), mebibytes(h.guard.rss), mebibytes(h.guard.pss), mebibytes(both),
			fmt.Sprint(h.descriptors), fmt.Sprint(h.goroutines), "≤ "+mebibytes(maxIdle), verdict(checks...))
	}
	return t
}

func tabulateRest(title string, quiet []resting, d time.Duration) table {
	t := table{
		title:  title,
		header: []string{"Orla and its guard", "CPU", "of one core", "context switches", "target", "verdict"},
	}
	for _, r := range quiet {
		part := quotient(r.cpu, d)
		t.add(r.when, millis(r.cpu), fmt.Sprintf("%.3f %%", 100*part), fmt.Sprint(r.switches),
			fmt.Sprintf("≤ %.1f %%", 100*maxIdleCPU), verdict(check{"", part, maxIdleCPU}))
	}
	return t
}

// look takes stock of an Orla and its guard.
func look(ctx context.Context, s *server, when string) (h holding, err error) {
	h.when = when
	if h.orla, err = memoryOf(s.pid()); err != nil {
		return h, err
	}
	guards, err := guardsOf(s.pid())
	if err != nil {
		return h, err
	}
	for _, pid := range guards {
		m, err := memoryOf(pid)
		if err != nil {
			return h, err
		}
		h.guard.rss += m.rss
		h.guard.pss += m.pss
	}
	if h.descriptors, err = descriptorsOf(s.pid()); err != nil {
		return h, err
	}
	h.goroutines, err = s.goroutines(ctx)
	return h, err
}

// guardsOf lists the children of an Orla that run Orla themselves: its guard.
func guardsOf(pid int) ([]int, error) {
	orla, err := exeOf(pid)
	if err != nil {
		return nil, err
	}
	children, err := childrenOf(pid)
	return slices.DeleteFunc(children, func(child int) bool {
		path, err := exeOf(child)
		return err != nil || path != orla
	}), err
}

// watchRest measures what Orla and its guard do while nobody asks for anything.
func watchRest(ctx context.Context, s *server, d time.Duration) (resting, error) {
	pids, err := guardsOf(s.pid())
	if err != nil {
		return resting{}, err
	}
	pids = append(pids, s.pid())
	before, err := usedBy(pids)
	if err != nil {
		return resting{}, err
	}
	if err := rest(ctx, d); err != nil {
		return resting{}, err
	}
	after, err := usedBy(pids)
	if err != nil {
		return resting{}, fmt.Errorf("while Orla was idle: %w; its log ends: %s", err, s.logEnd())
	}
	return resting{cpu: after.cpu - before.cpu, switches: after.switches - before.switches}, nil
}

// usedBy adds up what processes have used so far.
func usedBy(pids []int) (r resting, err error) {
	for _, pid := range pids {
		used, err := cpuOf(pid)
		if err != nil {
			return r, err
		}
		switches, err := switchesOf(pid)
		if err != nil {
			return r, err
		}
		r.cpu += used.own
		r.switches += switches
	}
	return r, nil
}

// callOften makes many calls over connections that it closes at the end.
func callOften(ctx context.Context, s *server, tool string, n, inFlight int) error {
	clients := make([]*mcpClient, inFlight)
	requests := make([][]byte, inFlight)
	for i := range clients {
		c, err := connect(ctx, s.host, withSession)
		if err != nil {
			return err
		}
		defer c.close()
		clients[i], requests[i] = c, c.call(tool)
	}
	_, err := lanes(n, inFlight, func(lane int) error { return clients[lane].ask(requests[lane]) })
	return err
}

// rest does nothing for a while.
func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
