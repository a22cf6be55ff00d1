package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

const (
	// maxFlooded is how many times longer the slowest in a hundred calls of others
	// may take while one client floods; maxFloodedFor is what counts as nothing,
	// where the machine itself is what they share.
	maxFlooded    = 3
	maxFloodedFor = 50 * time.Millisecond
	// ordinaries call each tool, one call in ordinaryPace at most.
	ordinaries   = 4
	ordinaryPace = 10 * time.Millisecond
	// unread is the size of the answers that nobody reads: large, and not kept.
	unread = 3 << 20
	// unsent is the size of the requests that nobody sends.
	unsent = 16 << 20
)

// flood is one client that takes what it can get.
type flood struct {
	name    string
	others  []string // what the others call meanwhile
	deaf    bool     // it sends its request once on each connection, and reads nothing
	request func(c *mcpClient) []byte
}

// floodID stands where the flood puts an id for each of its connections.
const floodID = 1_000_000

func floodCalls(tool, params string) func(c *mcpClient) []byte {
	return func(c *mcpClient) []byte {
		return post(c.host, c.headersFor("tools/call", tool), message(floodID, "tools/call", params))
	}
}

var floods = []flood{
	{"calls of the same capsule", []string{slowCapsule}, false, floodCalls(slowCapsule, loadParams(slowCapsule))},
	{"calls of a simple tool", []string{simpleTool, capsuleTool}, false, floodCalls(simpleTool, loadParams(simpleTool))},
	{"large answers of the same capsule, not read", []string{capsuleTool, simpleTool}, true, floodCalls(capsuleTool, payload{size: unread}.params())},
	{"large requests, announced and not sent", []string{capsuleTool}, true, func(c *mcpClient) []byte {
		return postHead(c.host, mcpPath, c.headersFor("tools/call", capsuleTool), unsent)
	}},
	{"lists of the tools", []string{capsuleTool}, false, func(c *mcpClient) []byte {
		return post(c.host, c.headersFor("tools/list", ""), message(floodID, "tools/list", ""))
	}},
	{"new sessions", []string{capsuleTool}, false, func(c *mcpClient) []byte {
		return post(c.host, nil, message(floodID, "initialize", withSession.initialize()))
	}},
}

// measureFloods tells what one client that floods costs others.
func (b *bench) measureFloods(ctx context.Context, dir string) (table, error) {
	t := table{
		title:  "One client floods, others go on (G7)",
		header: []string{"flood of", "others call", "calls", "failed", "p50 alone", "p50", "p99 alone", "p99", "p99", "RSS alone", "RSS at most", "target", "verdict"},
		note: fmt.Sprintf("%d others for each tool, with a session each, call every %s at most, in turns of %s with the flood and without. The flood is one session, or one address, "+
			"with %d connections that ask again as soon as they are answered. The slow capsule takes a millisecond for a call, one after the other. "+
			"All share the machine with the flooding client itself, so that %s count as nothing.",
			ordinaries, ordinaryPace, b.scale.floodTurn, b.scale.flooders, maxFloodedFor),
	}
	for _, f := range floods {
		if err := b.floodRows(ctx, &t, dir, f); err != nil {
			return t, fmt.Errorf("a flood of %s: %w", f.name, err)
		}
	}
	return t, nil
}

// suffered is how the calls of one tool went.
type suffered struct {
	alone, flooded []time.Duration
	failed         int
}

func (b *bench) floodRows(ctx context.Context, t *table, dir string, f flood) error {
	s, err := b.startOrla(ctx, dir)
	if err != nil {
		return err
	}
	defer s.stop()
	others := make([][]*caller, len(f.others))
	went := make([]suffered, len(f.others))
	for i, tool := range f.others {
		if others[i], err = callers(ctx, s.host, tool, ordinaries); err != nil {
			return err
		}
		defer hangUp(others[i])
	}
	carryOn(others, b.scale.floodTurn) // to warm up
	alone, err := memoryOf(s.pid())
	if err != nil {
		return err
	}
	most := alone.rss
	for range b.scale.floodTurns {
		took, failed := carryOn(others, b.scale.floodTurn)
		end, err := f.start(ctx, b, s.host)
		if err != nil {
			return err
		}
		flooded, failedThen := carryOn(others, b.scale.floodTurn)
		now, err := memoryOf(s.pid())
		if err := errors.Join(err, end(), rest(ctx, b.scale.floodTurn/4)); err != nil {
			return err
		}
		most = max(most, now.rss)
		for i := range went {
			went[i].alone = append(went[i].alone, took[i]...)
			went[i].flooded = append(went[i].flooded, flooded[i]...)
			went[i].failed += failed[i] + failedThen[i]
		}
	}
	for i, w := range went {
		slow, slowAlone := p99(w.flooded), p99(w.alone)
		ratio := quotient(slow, slowAlone)
		held := ratio
		if slow <= maxFloodedFor {
			held = 1
		}
		t.add(f.name, f.others[i], fmt.Sprint(len(w.flooded)), fmt.Sprint(w.failed), millis(median(w.alone)), millis(median(w.flooded)),
			millis(slowAlone), millis(slow), times(ratio), mebibytes(alone.rss), mebibytes(most),
			fmt.Sprintf("≤ %s or %s", times(maxFlooded), maxFloodedFor),
			verdict(check{"p99", held, maxFlooded}, check{"answers", float64(w.failed), 0}))
	}
	return nil
}

// carryOn has clients call for so long, at a pace, and returns how long each
// tool's calls took and how many failed.
func carryOn(others [][]*caller, long time.Duration) (took [][]time.Duration, failed []int) {
	took, failed = make([][]time.Duration, len(others)), make([]int, len(others))
	var mu sync.Mutex // guards them
	var wg sync.WaitGroup
	end := time.Now().Add(long)
	for i, all := range others {
		for _, c := range all {
			wg.Go(func() {
				pace := time.NewTicker(ordinaryPace)
				defer pace.Stop()
				for began := time.Now(); began.Before(end); began = time.Now() {
					err := c.call()
					mu.Lock()
					took[i] = append(took[i], time.Since(began))
					if err != nil {
						failed[i]++
					}
					mu.Unlock()
					<-pace.C
				}
			})
		}
	}
	wg.Wait()
	return took, failed
}

// start begins a flood, by a process of its own, in one session.
func (f flood) start(ctx context.Context, b *bench, host string) (end func() error, err error) {
	first, err := connect(ctx, host, withSession)
	if err != nil {
		return nil, err
	}
	defer first.close()
	return b.startFlood(ctx, []string{b.flood, "-host", host, "-connections", fmt.Sprint(b.scale.flooders), fmt.Sprintf("-deaf=%v", f.deaf)}, f.request(first))
}

// startFlood starts a command line of the program flood with its requests, and waits
// until it is connected.
func (b *bench) startFlood(ctx context.Context, argv []string, requests []byte) (end func() error, err error) {
	file := filepath.Join(b.dir, "flood")
	if err := os.WriteFile(file, requests, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, argv[0], append(argv[1:], "-request", file)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := io.ReadFull(out, make([]byte, len("flooding\n"))); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// checkAny sees to it that an answer is a good one, of a capsule or of a simple tool.
func (p payload) checkAny(a answer) error {
	if a.status != http.StatusOK {
		return fmt.Errorf("status %d: %.300s", a.status, a.body)
	}
	if p.check(a.body) == nil {
		return nil
	}
	if !bytes.Contains(a.body, []byte(`"exit_code":0`)) {
		return fmt.Errorf("not the answer of a call that went well: %.300s", a.body)
	}
	return nil
}
