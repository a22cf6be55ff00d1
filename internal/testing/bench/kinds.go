package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Targets of a call of each type of tool against the same call made directly.
const (
	maxKind = 1.3
	maxGRPC = 1.5
)

// kind is one type of tool that is a service.
type kind struct {
	name string
	tool string // its name
	args string
	most float64
	hand func(context.Context) error // the same call by Go's own client
}

// kindResources are a tool of each type. It takes the host of the services three
// times, and a command.
const kindResources = `apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: http}
spec: {type: http, endpoint: "http://%[1]s/http", input_schema: {type: object}}
---
apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: external}
spec: {type: external, endpoint: "http://%[1]s/contract", input_schema: {type: object}}
---
apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: grpc}
spec: {type: grpc, endpoint: "grpc://%[1]s", input_schema: {type: object}}
---
apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: webhook}
spec: {type: webhook-callback, endpoint: "http://%[1]s/contract", input_schema: {type: object}}
---
apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: pending}
spec: {type: webhook-callback, endpoint: "http://%[1]s/pending", input_schema: {type: object}, runtime: {timeout: 10m}}
---
apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: far}
spec: {transport: http, endpoint: "http://%[1]s/mcp"}
---
apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: near}
spec: {transport: stdio, command: %[2]q, args: [stdio]}
`

// measureKinds compares a call of each type of tool that is a service with the
// same call made directly, in this process both; and tells what such a tool
// costs while it waits.
func measureKinds(ctx context.Context, b *bench) ([]table, error) {
	services, err := b.start(ctx, b.services)
	if err != nil {
		return nil, err
	}
	defer services.stop()
	dir := filepath.Join(b.dir, "kinds")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	resources := fmt.Appendf(nil, kindResources, services.host, b.services)
	if err := os.WriteFile(filepath.Join(dir, "kinds.yaml"), resources, 0o600); err != nil {
		return nil, err
	}
	own, err := startInProcess(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer own.stop()
	byHand, err := openHands(ctx, services.host, b.services)
	if err != nil {
		return nil, err
	}
	defer byHand.close()
	whole, err := b.startOrla(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer whole.stop()
	clients, err := openWhole(ctx, whole, slices.Max(b.scale.kindInFlight))
	if err != nil {
		return nil, err
	}
	defer clients.close()

	t := table{
		title: "A call of each type of service against the same call made directly (SPEC-TOOLS 3)",
		header: []string{
			"type, calls in flight", "p50 direct", "p50 Orla", "p50", "CPU direct", "CPU Orla", "CPU",
			"connections", "p50 whole", "CPU whole", "target", "verdict",
		},
		note: "By hand is Go's own client: net/http, connect for gRPC, the SDK's for MCP, with the same envelopes, which it checks as well. " +
			"Both call from one process, in turns; the service's own time is in the p50 and not in the CPU. " +
			"Connections are those that Orla opens for the first calls of a row, four for each in flight. " +
			"Whole is a call through Orla's own MCP endpoint, with all that the protocol, its checks and its log cost.",
	}
	for _, k := range byHand.kinds() {
		for _, inFlight := range b.scale.kindInFlight {
			if err := b.compareKind(ctx, &t, k, inFlight, services, own, clients); err != nil {
				return nil, fmt.Errorf("%s, %d in flight: %w", k.name, inFlight, err)
			}
		}
	}
	waiting, err := b.measureWaiting(ctx, own)
	if err != nil {
		return nil, err
	}
	return []table{t, waiting}, nil
}

func (b *bench) compareKind(ctx context.Context, t *table, k kind, inFlight int, services *server, own *inProcess, clients *wholeClients) error {
	before, err := connectionsOf(ctx, services)
	if err != nil {
		return err
	}
	through := subject{name: "Orla", cpu: ownCPU, shared: true, load: func(n, inFlight int) ([]time.Duration, error) {
		return lanes(n, inFlight, func(int) error { return own.call(ctx, k.tool, k.args) })
	}}
	if _, err := through.load(4*inFlight, inFlight); err != nil {
		return err
	}
	after, err := connectionsOf(ctx, services)
	if err != nil {
		return err
	}
	subjects := []subject{
		{name: "direct", cpu: ownCPU, shared: true, load: func(n, inFlight int) ([]time.Duration, error) {
			return lanes(n, inFlight, func(int) error { return k.hand(ctx) })
		}},
		through,
		{
			name: "whole", cpu: func() (cpu, error) { return cpuOf(clients.server.pid()) },
			load: func(n, inFlight int) ([]time.Duration, error) { return clients.load(k, n, inFlight) },
		},
	}
	results, err := compare(ctx, b.scale.kindCell, 2*inFlight, inFlight, subjects)
	if err != nil {
		return err
	}
	hand, orla, whole := results[0], results[1], results[2]
	byCPU := quotient(orla.cpu.own, hand.cpu.own)
	t.add(fmt.Sprintf("%s, %d", k.name, inFlight),
		micros(hand.p50), micros(orla.p50), times(orla.ratio),
		micros(hand.cpu.own), micros(orla.cpu.own), times(byCPU), fmt.Sprint(after-before),
		micros(whole.p50), micros(whole.cpu.own),
		"≤ "+times(k.most), verdict(check{"p50", orla.ratio, k.most}, check{"CPU", byCPU, k.most}))
	return nil
}

// wholeClients are clients of an Orla's MCP endpoint.
type wholeClients struct {
	server  *server
	clients []*mcpClient
}

func openWhole(ctx context.Context, s *server, connections int) (*wholeClients, error) {
	w := &wholeClients{server: s}
	for range connections {
		c, err := connect(ctx, s.host, withSession)
		if err != nil {
			w.close()
			return nil, err
		}
		w.clients = append(w.clients, c)
	}
	return w, nil
}

func (w *wholeClients) close() {
	for _, c := range w.clients {
		c.close()
	}
}

func (w *wholeClients) load(k kind, n, inFlight int) ([]time.Duration, error) {
	requests := make([][]byte, inFlight)
	for i := range requests {
		requests[i] = w.clients[i].named("tools/call", k.tool, fmt.Sprintf(`"name":%q,"arguments":%s`, k.tool, k.args))
	}
	return lanes(n, inFlight, func(lane int) error {
		a, err := w.clients[lane].roundTrip(requests[lane])
		if err != nil {
			return err
		}
		return checkKind(a.body)
	})
}

// kindText is in every answer of the services.
var kindText = bytes.Repeat([]byte("x"), littleText)

// checkKind sees to it that no error is measured in place of an answer.
func checkKind(answer []byte) error {
	if !bytes.Contains(answer, kindText) {
		return fmt.Errorf("not the answer of a service: %.500s", answer)
	}
	return nil
}
