package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// Targets of SPEC L1.
const (
	maxToRelay = 1.5
	maxToSDK   = 1.25
)

// mostForSDK is how much may be in flight where the SDK takes part: above that
// a single turn of it takes seconds.
const mostForSDK = 16 << 20 // bytes

// measureCapsuleCalls compares a call of a capsule, over each transport, with
// the least that can stand between, and with a server that has its tool inside.
func measureCapsuleCalls(ctx context.Context, b *bench) ([]table, error) {
	toolsDir := filepath.Join(b.dir, "capsule")
	if err := b.capsulePackage(toolsDir, capsuleTool, ""); err != nil {
		return nil, err
	}
	byRelay := table{
		title: "A capsule call against a relay that copies bytes (L1)",
		header: []string{
			"payload, calls in flight", "over", "p50 relay", "p50 Orla", "p50", "CPU relay", "CPU Orla", "CPU",
			"own relay", "own Orla", "own", "target", "verdict",
		},
		note: "The relay is hand-written: net/http, or its own stdin and stdout, on one side and the capsule's pipes on the other; it copies " +
			"the bytes and gives requests ids of its own. Over stdio it also checks that each line is JSON; against one that does not, there is no target. CPU is that of the server and of the capsule together, for each call; " +
			"\"own\" is the server's part. \"Arguments\" are a payload that the client sends; all others are the answer's.",
	}
	bySDK := table{
		title: "A capsule call against the SDK with the tool inside, and a pipe (L1)",
		header: []string{
			"payload, calls in flight", "over", "p50 SDK", "p50 pipe", "p50 Orla", "p50", "CPU SDK", "CPU pipe", "CPU Orla", "CPU",
			"target", "verdict",
		},
		note: "Orla is held to the sum of a plain server, made with the Go SDK, that answers by itself, and of a round trip from a " +
			"Go program to the capsule, with as many in flight. Payloads of over 16 MiB in all are left out: the SDK takes seconds for them.",
	}
	measure := func(f *field, err error) error {
		defer f.close()
		if err != nil {
			return err
		}
		for _, p := range b.scale.payloads {
			for _, inFlight := range b.scale.capsuleInFlight {
				if err := b.compareContenders(ctx, f, p, inFlight, &byRelay, &bySDK); err != nil {
					return fmt.Errorf("%s, %d in flight: %w", p, inFlight, err)
				}
			}
		}
		return nil
	}
	if err := measure(b.openHTTPField(ctx, toolsDir, slices.Max(b.scale.capsuleInFlight))); err != nil {
		return nil, err
	}
	if err := measure(b.openStdioField(ctx, toolsDir)); err != nil {
		return nil, err
	}
	return []table{byRelay, bySDK}, nil
}

func (b *bench) compareContenders(ctx context.Context, f *field, p payload, inFlight int, byRelay, bySDK *table) error {
	orlas := f.orlas
	if p != b.scale.payloads[0] {
		orlas = orlas[:1] // the eras differ in what stands around a payload
	}
	var subjects []subject
	for _, c := range append([]*contender{f.relay}, orlas...) {
		subjects = append(subjects, c.subject(p))
	}
	withSDK := p.size*inFlight <= mostForSDK
	if withSDK {
		subjects = append(subjects, f.sdk.subject(p), f.pipe.subject(p))
	}
	if f.bare != nil {
		subjects = append(subjects, f.bare.subject(p))
	}
	results, err := compare(ctx, b.scale.capsuleCell, inFlight, inFlight, subjects)
	if err != nil {
		return err
	}
	relay := results[0]
	b.drawCalls(f, p, inFlight, results, withSDK)
	cell := fmt.Sprintf("%s, %d", p, inFlight)
	against := func(over string, r, relay result, target ...string) {
		byRelay.add(append([]string{
			cell, over, micros(relay.p50), micros(r.p50), times(r.against(relay)),
			micros(relay.cpu.total()), micros(r.cpu.total()), times(quotient(r.cpu.total(), relay.cpu.total())),
			micros(relay.cpu.own), micros(r.cpu.own), times(quotient(r.cpu.own, relay.cpu.own)),
		}, target...)...)
	}
	for i, r := range results[1 : 1+len(orlas)] {
		over := orlas[i].over
		byCPU := quotient(r.cpu.total(), relay.cpu.total())
		against(over, r, relay, "≤ "+times(maxToRelay), verdict(check{"p50", r.against(relay), maxToRelay}, check{"CPU", byCPU, maxToRelay}))
		if f.bare != nil {
			against(over+", bare", r, results[len(results)-1], "", "")
		}
		if !withSDK {
			continue
		}
		sdk, pipe := results[1+len(orlas)], results[2+len(orlas)]
		toBoth, cpuToBoth := r.against(sdk, pipe), quotient(r.cpu.total(), sdk.cpu.total()+pipe.cpu.total())
		bySDK.add(cell, over, micros(sdk.p50), micros(pipe.p50), micros(r.p50), times(toBoth),
			micros(sdk.cpu.total()), micros(pipe.cpu.total()), micros(r.cpu.total()), times(cpuToBoth),
			"≤ "+times(maxToSDK), verdict(check{"p50", toBoth, maxToSDK}, check{"CPU", cpuToBoth, maxToSDK}))
	}
	return nil
}

// drawCalls draws what was measured over HTTP in the first era.
func (b *bench) drawCalls(f *field, p payload, inFlight int, results []result, withSDK bool) {
	if f.orlas[0].over != withSession.name {
		return
	}
	smallest := p == b.scale.payloads[0]
	b.plots.addCall("Orla", p, smallest, inFlight, results[1], results[0])
	if withSDK {
		b.plots.addCall(insideSDK, p, smallest, inFlight, results[len(results)-2], results[0])
	}
}
