package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// maxActiveSession is the memory that a session may hold whose calls never pause.
	maxActiveSession = 128 << 10
	// maxSlowdown is how many times fewer calls a second many sessions may get
	// through than few, all together.
	maxSlowdown = 1.5
	// fewSessions keep both cores busy.
	fewSessions = 16
	// slowCapsule takes a millisecond for each call, one after the other.
	slowCapsule = "slow"
)

// loadTools is a folder with a fast capsule, a slow one and a simple tool.
func (b *bench) loadTools() (string, error) {
	dir := filepath.Join(b.dir, "load")
	if _, err := os.Stat(dir); err == nil {
		return dir, nil // another section has made it
	}
	if err := b.capsulePackage(dir, capsuleTool, ""); err != nil {
		return "", err
	}
	if err := b.capsulePackage(dir, slowCapsule, ", args: [-work, 1ms]"); err != nil {
		return "", err
	}
	return dir, os.Link(b.path(b.programs[0].name), filepath.Join(dir, simpleTool))
}

// simpleTool prints its arguments.
const simpleTool = "simple"

// loadParams are those of a call of one of loadTools.
func loadParams(tool string) string {
	return fmt.Sprintf(`"name":%q,"arguments":{"size":%d}`, tool, littleText)
}

// caller is a client that repeats one call.
type caller struct {
	*mcpClient
	request []byte
}

// callers connects n clients for calls of a tool, with a session each.
func callers(ctx context.Context, host, tool string, n int) (all []*caller, err error) {
	return callersAs(ctx, host, tool, "", n)
}

// callersAs does the same with a token.
func callersAs(ctx context.Context, host, tool, token string, n int) (all []*caller, err error) {
	for range n {
		c, err := connectAs(ctx, host, withSession, token)
		if err != nil {
			hangUp(all)
			return nil, err
		}
		request := post(host, c.headersFor("tools/call", tool), message(2, "tools/call", loadParams(tool)))
		all = append(all, &caller{c, request})
	}
	return all, nil
}

func hangUp(all []*caller) {
	for _, c := range all {
		c.close()
	}
}

// call makes one call.
func (c *caller) call() error {
	a, err := c.roundTrip(c.request)
	if err != nil {
		return err
	}
	return payload{size: littleText}.checkAny(a)
}

// active are what many sessions ask for.
var active = []struct{ what, tool string }{{"capsule calls", capsuleTool}, {"simple tool calls", simpleTool}}

// measureActive tells what many sessions hold, and how long they wait, that never pause.
func (b *bench) measureActive(ctx context.Context, dir string) (table, error) {
	t := table{
		title: "Many active clients (G7)",
		header: []string{
			"what", "sessions", fmt.Sprintf("calls/s of %d", fewSessions), "calls/s", "slower", fmt.Sprintf("p50 of %d", fewSessions), "p50", fmt.Sprintf("p99 of %d", fewSessions), "p99",
			"RSS fresh", "RSS meanwhile", "each", "RSS left", "given back in", "targets", "verdict",
		},
		note: "Each session has a connection of its own and asks again as soon as it is answered, so that as many calls are in flight as there are sessions.",
	}
	for _, a := range active {
		if err := b.activeRow(ctx, &t, dir, a.what, a.tool); err != nil {
			return t, fmt.Errorf("%s: %w", a.what, err)
		}
	}
	return t, nil
}

func (b *bench) activeRow(ctx context.Context, t *table, dir, what, tool string) error {
	n, err := connections(b.scale.active)
	if err != nil {
		return err
	}
	s, err := b.startOrla(ctx, dir)
	if err != nil {
		return err
	}
	defer s.stop()
	few, err := callers(ctx, s.host, tool, fewSessions)
	if err != nil {
		return err
	}
	defer hangUp(few)
	if _, err := keepCalling(few, b.scale.floodTurn); err != nil { // to warm up
		return err
	}
	fewTook, err := keepCalling(few, b.scale.activeTime)
	if err != nil {
		return err
	}
	fresh, err := memoryOf(s.pid())
	if err != nil {
		return err
	}
	many, err := callers(ctx, s.host, tool, n)
	if err != nil {
		return err
	}
	defer hangUp(many)
	took, err := keepCalling(many, b.scale.activeTime)
	if err != nil {
		return err
	}
	busy, err := memoryOf(s.pid())
	if err != nil {
		return err
	}
	if err := leaveAll(many); err != nil {
		return err
	}
	left, back, err := awaitGivenBack(ctx, s.pid(), fresh.rss, busy.rss, b.scale.giveBack)
	if err != nil {
		return err
	}
	slower := float64(len(fewTook)) / float64(max(1, len(took)))
	grown := busy.rss - fresh.rss
	second := func(took []time.Duration) string {
		return fmt.Sprintf("%.0f", float64(len(took))/b.scale.activeTime.Seconds())
	}
	t.add(what, fmt.Sprint(n), second(fewTook), second(took), times(slower), millis(median(fewTook)), millis(median(took)), millis(p99(fewTook)), millis(p99(took)),
		mebibytes(fresh.rss), mebibytes(busy.rss), each(grown, n), mebibytes(left), back, "≤ "+times(maxSlowdown)+", "+kibibytes(maxActiveSession),
		verdict(check{"calls", slower, maxSlowdown}, check{"memory", float64(grown) / float64(n), maxActiveSession},
			check{"given back", float64(left-fresh.rss) / float64(max(1, grown)), maxKept}))
	return nil
}

// keepCalling has all call for so long, and returns how long each call took.
func keepCalling(all []*caller, long time.Duration) ([]time.Duration, error) {
	var mu sync.Mutex // guards the two that follow
	var took []time.Duration
	var failed error
	var wg sync.WaitGroup
	end := time.Now().Add(long)
	for _, c := range all {
		wg.Go(func() {
			var own []time.Duration
			var err error
			for began := time.Now(); err == nil && began.Before(end); began = time.Now() {
				err = c.call()
				own = append(own, time.Since(began))
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, own...)
			if err != nil {
				failed = err
			}
		})
	}
	wg.Wait()
	return took, failed
}

// leaveAll ends the sessions, and closes the connections.
func leaveAll(all []*caller) error {
	for _, c := range all {
		_, err := c.roundTrip(fmt.Appendf(nil, "DELETE /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\n\r\n", c.host, c.session))
		if err != nil {
			return err
		}
	}
	hangUp(all)
	return nil
}
