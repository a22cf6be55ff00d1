package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// rival is one of those that Orla is compared with in a cell. It is started
// again after it has failed.
type rival struct {
	name, over string
	open       func(context.Context) (*contender, error)
	now        *contender // nil while there is none
}

// measurePeers compares calls of one MCP server on stdio through Orla with the
// same calls through gateways that others make.
func measurePeers(ctx context.Context, b *bench) ([]table, error) {
	r := race{budget: b.scale.peerCell, plots: b.plots, smallest: b.scale.payloads[0].size, table: table{
		title:  "A call of the same MCP server on stdio, through Orla and through other gateways",
		header: []string{"payload, calls in flight", "over", "gateway", "p50", "p50 Orla", "p50 of Orla", "CPU", "CPU Orla", "CPU of Orla", "verdict"},
		note: "The ratios are Orla's part of what the other takes: below 1, Orla is ahead. All have one process of the same server, which costs next to " +
			"nothing, and all of their processes count. Each is in its fastest mode: supergateway stateful, with its log off and one session for all " +
			"clients, since it starts a server for each; mcp-proxy without its event store; mcp-hub by its REST endpoint, as its MCP is that of HTTP with SSE alone. " +
			"mcp-go is a gateway of 60 lines made with the library github.com/mark3labs/mcp-go, as gateways in Go are. " +
			"Of them mcp-proxy and mcp-go alone speak 2026-07-28 without a process for each call. None serves a server on stdio over stdio, and none has simple tools. " +
			"The relay is not a gateway; it shows the lower bound.",
	}}
	entrants := standIns()
	if !b.scale.quick {
		entrants = peers()
		if err := b.installPeers(ctx); err != nil {
			r.table.add("-", "-", "-", "-", "-", "-", "-", "-", "-", "not measured: "+oneLine(err))
			return []table{r.table}, nil
		}
	}
	toolsDir, err := b.serverPackage()
	if err != nil {
		return nil, err
	}
	for _, e := range []era{withSession, stateless} {
		if err := b.raceInEra(ctx, &r, entrants, e, toolsDir); err != nil {
			return nil, fmt.Errorf("%s: %w", e.name, err)
		}
	}
	r.table.note += r.footnotes()
	return []table{r.table}, nil
}

// serverPackage makes a folder of tools with the MCP server that stands behind all.
func (b *bench) serverPackage() (string, error) {
	dir := filepath.Join(b.dir, "server")
	if err := os.MkdirAll(filepath.Join(dir, "bench"), 0o755); err != nil {
		return "", err
	}
	if err := os.Link(b.capsule, filepath.Join(dir, "bench", "capsule")); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "bench", "tool.yaml"), []byte(serverManifest), 0o600)
}

const serverManifest = `name: bench
version: 1.0.0
description: An MCP server on stdio.
entrypoint: capsule
runtime: {mode: capsule, handshake: mcp, args: [-mcp], tool_prefix: ""}
`

// raceInEra starts all who speak an era, and measures them with every payload.
func (b *bench) raceInEra(ctx context.Context, r *race, entrants []peer, e era, toolsDir string) error {
	connections := slices.Max(b.scale.capsuleInFlight)
	open := func(name string, argv ...string) (*contender, error) {
		s, err := b.start(ctx, argv...)
		if err != nil {
			return nil, err
		}
		return openHTTPContender(ctx, name, s, e, connections)
	}
	relay, err := open("relay", b.relay, "http", b.capsule)
	if err != nil {
		return err
	}
	defer relay.close()
	orla, err := open("Orla", b.orlaHTTP(toolsDir)...)
	if err != nil {
		return err
	}
	defer orla.close()
	var rivals []*rival
	defer func() {
		for _, one := range rivals {
			one.close()
		}
	}()
	for _, p := range entrants {
		if !slices.Contains(p.eras, e) {
			continue
		}
		over := e.name
		if p.rest {
			over = overREST
		}
		one := &rival{name: p.name, over: over, open: func(ctx context.Context) (*contender, error) { return b.openPeer(ctx, p, e, connections) }}
		rivals = append(rivals, one)
	}
	for _, p := range b.scale.payloads {
		if p.asArgs && !e.session {
			continue // the eras differ in what stands around a payload
		}
		for _, inFlight := range b.scale.capsuleInFlight {
			if err := r.cell(ctx, p, inFlight, relay, orla, rivals); err != nil {
				return fmt.Errorf("%s, %d in flight: %w", p, inFlight, err)
			}
		}
	}
	return nil
}

func (r *rival) close() {
	if r.now != nil {
		r.now.close()
		r.now = nil
	}
}

// ready starts the rival where it does not run.
func (r *rival) ready(ctx context.Context) (err error) {
	if r.now == nil {
		r.now, err = r.open(ctx)
	}
	return err
}
