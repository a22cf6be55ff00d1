package main

import (
	"context"
	"fmt"
	"time"
)

const (
	// maxList is the CPU time that a list of 1 000 tools may cost (SPEC L2).
	maxList  = 5 * time.Millisecond
	listSize = 1000
	// maxGrowth is how much dearer a call may be with many tools: nothing,
	// but for what a measurement is out by.
	maxGrowth = 1.05
)

// catalog is an Orla with a number of tools.
type catalog struct {
	size   int
	server *server
}

// measureTools compares Orlas with few and with many tools.
func measureTools(ctx context.Context, b *bench) ([]table, error) {
	var catalogs []catalog
	defer func() {
		for _, c := range catalogs {
			c.server.stop()
		}
	}()
	for _, size := range b.scale.tools {
		dir, err := b.manyTools(size)
		if err != nil {
			return nil, err
		}
		s, err := b.startOrla(ctx, dir)
		if err != nil {
			return nil, err
		}
		catalogs = append(catalogs, catalog{size, s})
	}
	lists := table{
		title:  "tools/list, all pages (L2)",
		header: []string{"tools", "over", "pages", "p50", "CPU of Orla", "CPU per 1 000", "target", "verdict"},
		note:   "The target is for 1 000 tools; 10 000 are held to ten times as much.",
	}
	calls := table{
		title:  "A call with many tools (L2)",
		header: []string{"tools", "over", "p50", "p50 to 1 tool", "CPU", "CPU to 1 tool", "RSS of Orla", "target", "verdict"},
		note:   "A /bin/sh script, one call at a time.",
	}
	for _, e := range []era{withSession, stateless} {
		if err := b.compareLists(ctx, &lists, e, catalogs); err != nil {
			return nil, err
		}
	}
	return []table{lists, calls}, b.compareSizes(ctx, &calls, withSession, catalogs)
}

func (b *bench) compareLists(ctx context.Context, t *table, e era, catalogs []catalog) error {
	pages := make([]int, len(catalogs))
	subjects, hangUp, err := connectAll(ctx, e, catalogs, func(i int, c *mcpClient) func() error {
		return func() (err error) {
			pages[i], err = c.list()
			return err
		}
	})
	defer hangUp()
	if err != nil {
		return err
	}
	results, err := compare(ctx, b.scale.catalog, 1, 1, subjects)
	if err != nil {
		return err
	}
	for i, r := range results {
		size := catalogs[i].size
		perThousand := r.cpu.total() * listSize / time.Duration(size)
		each, target, met := "", "", ""
		if size >= listSize {
			each, target, met = millis(perThousand), "≤ "+millis(maxList), verdict(check{"", float64(perThousand), float64(maxList)})
		}
		t.add(fmt.Sprint(size), e.name, fmt.Sprint(pages[i]), millis(r.p50), millis(r.cpu.total()), each, target, met)
	}
	return nil
}

func (b *bench) compareSizes(ctx context.Context, t *table, e era, catalogs []catalog) error {
	subjects, hangUp, err := connectAll(ctx, e, catalogs, func(i int, c *mcpClient) func() error {
		request := c.call(toolName(catalogs[i].size - 1))
		return func() error { return c.ask(request) }
	})
	defer hangUp()
	if err != nil {
		return err
	}
	results, err := compare(ctx, b.scale.catalog, 2, 1, subjects)
	if err != nil {
		return err
	}
	for i, r := range results {
		held, err := memoryOf(catalogs[i].server.pid())
		if err != nil {
			return err
		}
		byCPU := quotient(r.cpu.total(), results[0].cpu.total())
		b.plots.memory.add("Orla", catalogs[i].size, float64(held.rss)/(1<<20))
		target, met := "", ""
		if i > 0 {
			target, met = "≤ "+times(maxGrowth), verdict(check{"p50", r.ratio, maxGrowth}, check{"CPU", byCPU, maxGrowth})
		}
		t.add(fmt.Sprint(catalogs[i].size), e.name, micros(r.p50), times(r.ratio), micros(r.cpu.total()), times(byCPU), mebibytes(held.rss), target, met)
	}
	return nil
}

// connectAll makes a subject of every catalog. The function that it returns
// ends the connections; it is never nil.
func connectAll(ctx context.Context, e era, catalogs []catalog, work func(i int, c *mcpClient) func() error) ([]subject, func(), error) {
	var clients []*mcpClient
	hangUp := func() {
		for _, c := range clients {
			c.close()
		}
	}
	var subjects []subject
	for i, one := range catalogs {
		c, err := connect(ctx, one.server.host, e)
		if err != nil {
			return nil, hangUp, err
		}
		clients = append(clients, c)
		piece := work(i, c)
		subjects = append(subjects, subject{
			name: fmt.Sprint(one.size),
			load: func(n, inFlight int) ([]time.Duration, error) {
				return lanes(n, inFlight, func(int) error { return piece() })
			},
			cpu: func() (cpu, error) { return cpuOf(one.server.pid()) },
		})
	}
	return subjects, hangUp, nil
}
