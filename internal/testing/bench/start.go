package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// starter is a program whose start is measured.
type starter struct {
	name  string
	argv  []string
	first func(ctx context.Context, host string) error // asks the first question
	every int                                          // it has its turn in every so many rounds
}

// measureStart compares the time from exec to the first answer with that of a
// bare HTTP server.
func measureStart(ctx context.Context, b *bench) ([]table, error) {
	few, many := b.scale.tools[0], slices.Max(b.scale.tools)
	starters := []starter{{"bare HTTP server in Go", []string{b.hello}, firstHello, 1}}
	for _, size := range []int{few, many} {
		dir, err := b.manyTools(size)
		if err != nil {
			return nil, err
		}
		every := 1
		if size == many {
			every = max(1, b.scale.starts/b.scale.manyStarts)
		}
		starters = append(starters, starter{fmt.Sprintf("Orla, %d tools, tools/call", size), b.orlaHTTP(dir), firstCall, every})
	}
	took := make([][]time.Duration, len(starters))
	used := make([][]time.Duration, len(starters))
	for round := range b.scale.starts {
		for i, s := range starters {
			if round%s.every != 0 {
				continue
			}
			wall, own, err := b.startOnce(ctx, s)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			took[i] = append(took[i], wall)
			used[i] = append(used[i], own)
		}
	}
	t := table{
		title:  "From exec to the first answer",
		header: []string{"program", "starts", "p50", "to bare", "CPU"},
		note:   "CPU is that of the server's own process until then.",
	}
	base := median(took[0])
	for i, s := range starters {
		p50 := median(took[i])
		t.add(s.name, fmt.Sprint(len(took[i])), millis(p50), times(quotient(p50, base)), millis(median(used[i])))
	}
	return []table{t}, nil
}

// startOnce measures one start.
func (b *bench) startOnce(ctx context.Context, st starter) (wall, own time.Duration, err error) {
	s, err := b.start(ctx, st.argv...)
	if err != nil {
		return 0, 0, err
	}
	defer s.stop()
	if err := st.first(ctx, s.host); err != nil {
		return 0, 0, err
	}
	wall = time.Since(s.began)
	used, err := cpuOf(s.pid())
	return wall, used.own, err
}

func firstHello(ctx context.Context, host string) error {
	c, err := dial(ctx, host)
	if err != nil {
		return err
	}
	defer c.close()
	a, err := c.roundTrip(post(host, nil, ""))
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("status %d", a.status)
	}
	return err
}

func firstCall(ctx context.Context, host string) error {
	c, err := connect(ctx, host, stateless)
	if err != nil {
		return err
	}
	defer c.close()
	return c.ask(c.call(toolName(0)))
}
