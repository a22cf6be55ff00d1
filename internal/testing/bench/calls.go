package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// Targets of SPEC L1.
const (
	maxHTTP  = 1.25
	maxStdio = 1.15
)

// mostPythons are in flight at a time.
const mostPythons = 16

// measureCalls compares a simple call, over each transport, with a bare fork
// and exec of the same program. One at a time it is held to its p50. Many at a
// time keep all processors busy, and then a p50 tells of queues and not of costs:
// bare lanes take turns unfairly, so that most are done soon and some late, and
// Orla's fairly. What is compared there is how long all of them took together.
func measureCalls(ctx context.Context, b *bench) ([]table, error) {
	fronts, err := b.openFronts(ctx)
	defer func() {
		for _, f := range fronts {
			f.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	t := table{
		title: "A simple call against a bare fork and exec (L1)",
		header: []string{
			"program, calls in flight", "over", "p50 bare", "p50 Orla", "p50", "each bare", "each Orla", "each",
			"CPU bare", "CPU Orla", "CPU", "own bare", "own Orla", "client", "target", "verdict",
		},
		note: "\"Each\" is how long all calls of a turn took, by their number: the inverse of what goes through. " +
			"With one in flight the target is for p50 and CPU, with more for \"each\" and CPU: the processors are all busy then, and a p50 tells " +
			"whose queue is fairer. " +
			"CPU is that of the starting process and of the program together, for each call; " +
			"\"own\" is the part of the starting process alone: pipes, fork, wait, and in Orla's case the protocol. " +
			"\"Client\" is the CPU of who calls, which a bare call has not and which takes its part of the processors, and so of \"each\". " +
			"python3 is left out with more than 16 in flight, where a turn takes seconds.",
	}
	for _, p := range b.programs {
		for _, inFlight := range b.scale.inFlight {
			if p.name == "python" && inFlight > mostPythons {
				continue
			}
			if err := b.compareCalls(ctx, &t, p, inFlight, fronts); err != nil {
				return nil, fmt.Errorf("%s, %d in flight: %w", p.what, inFlight, err)
			}
		}
	}
	return []table{t}, nil
}

func (b *bench) compareCalls(ctx context.Context, t *table, p program, inFlight int, fronts []*front) error {
	subjects := []subject{b.bare(p)} //nolint:contextcheck // a bare call has none, as it says there
	clients := make([]meteredLoad, len(fronts))
	for i, f := range fronts {
		clients[i].load = func(n, inFlight int) ([]time.Duration, error) { return f.load(p.name, n, inFlight) }
		subjects = append(subjects, subject{name: f.name, load: clients[i].run, cpu: func() (cpu, error) { return cpuOf(f.server.pid()) }})
	}
	results, err := compare(ctx, b.scale.cell, 2*inFlight, inFlight, subjects)
	if err != nil {
		return err
	}
	bare := results[0]
	for i, f := range fronts {
		r := results[i+1]
		byCPU := quotient(r.cpu.total(), bare.cpu.total())
		inTime := check{"p50", r.ratio, f.most}
		if inFlight > 1 {
			inTime = check{"each", r.pace, f.most}
		}
		t.add(fmt.Sprintf("%s, %d", p.what, inFlight), f.name,
			micros(bare.p50), micros(r.p50), times(r.ratio), micros(bare.turn), micros(r.turn), times(r.pace),
			micros(bare.cpu.total()), micros(r.cpu.total()), times(byCPU), micros(bare.cpu.own), micros(r.cpu.own), micros(clients[i].each()),
			"≤ "+times(f.most), verdict(inTime, check{"CPU", byCPU, f.most}))
	}
	return nil
}

// meteredLoad is a load that adds up what it costs this process.
type meteredLoad struct {
	load   load
	used   time.Duration
	pieces int
}

func (m *meteredLoad) run(n, inFlight int) ([]time.Duration, error) {
	before, err := ownCPU()
	if err != nil {
		return nil, err
	}
	took, err := m.load(n, inFlight)
	if err != nil {
		return nil, err
	}
	after, err := ownCPU()
	m.used += after.since(before).own
	m.pieces += n
	return took, err
}

// each is what one piece has cost.
func (m *meteredLoad) each() time.Duration { return m.used / time.Duration(max(1, m.pieces)) }

// bare is a program that is run by os/exec alone, with the arguments, the
// input and the folder that Orla gives it.
func (b *bench) bare(p program) subject {
	// A context that can end would cost a goroutine that the baseline does not need.
	forever := context.Background()
	run := func(int) error {
		cmd := exec.CommandContext(forever, b.path(p.name), argumentFlags()...)
		cmd.Dir = b.toolsDir
		cmd.Stdin = strings.NewReader(argument)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return err
		}
		if stdout.String() != argument || stderr.Len() > 0 {
			return fmt.Errorf("%s printed %q and %q", p.name, &stdout, &stderr)
		}
		return nil
	}
	load := func(n, inFlight int) ([]time.Duration, error) { return lanes(n, inFlight, run) }
	return subject{name: "bare", load: load, cpu: ownCPU, shared: true}
}

// front is an Orla of its own behind one transport.
type front struct {
	name   string
	most   float64 // the target of its ratios
	server *server
	load   func(tool string, n, inFlight int) ([]time.Duration, error)
	close  func()
}

// openFronts starts an Orla for each transport, so that their CPU times are
// apart. What it returns beside an error is to be closed as well.
func (b *bench) openFronts(ctx context.Context) ([]*front, error) {
	var fronts []*front
	for _, e := range []era{withSession, stateless} {
		s, err := b.startOrla(ctx, b.toolsDir)
		if err != nil {
			return fronts, err
		}
		f, err := openHTTP(ctx, s, e, slices.Max(b.scale.inFlight))
		if err != nil {
			s.stop()
			return fronts, err
		}
		fronts = append(fronts, f)
	}
	s, err := b.startStdio(ctx, b.toolsDir)
	if err != nil {
		return fronts, err
	}
	c, err := connectStdio(s)
	if err != nil {
		s.stop()
		return fronts, err
	}
	return append(fronts, &front{name: "stdio", most: maxStdio, server: s, load: c.calls, close: s.stop}), nil
}

// openHTTP connects as many clients as calls are to be in flight.
func openHTTP(ctx context.Context, s *server, e era, connections int) (*front, error) {
	clients := make([]*mcpClient, 0, connections)
	hangUp := func() {
		for _, c := range clients {
			c.close()
		}
	}
	for range connections {
		c, err := connect(ctx, s.host, e)
		if err != nil {
			hangUp()
			return nil, err
		}
		clients = append(clients, c)
	}
	load := func(tool string, n, inFlight int) ([]time.Duration, error) {
		requests := make([][]byte, inFlight)
		for i := range requests {
			requests[i] = clients[i].call(tool)
		}
		return lanes(n, inFlight, func(lane int) error { return clients[lane].ask(requests[lane]) })
	}
	return &front{name: e.name, most: maxHTTP, server: s, load: load, close: func() { hangUp(); s.stop() }}, nil
}
