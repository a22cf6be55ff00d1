package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// maxTenants is how many times longer the slowest in a hundred calls of one tenant may
// take while another has all its sessions call without a pause.
const maxTenants = 3

// tenantTurns are how many turns of a flood one with or without the load is long: a
// hundredth of the calls must be more than a few.
const tenantTurns = 4

// measureTenants tells what a tenant with many sessions costs another (SPEC N2).
func measureTenants(ctx context.Context, b *bench) ([]table, error) {
	if err := raiseFiles(); err != nil {
		return nil, err
	}
	dir, err := b.loadTools()
	if err != nil {
		return nil, err
	}
	config, err := b.tenantsConfig()
	if err != nil {
		return nil, err
	}
	t := table{
		title:  "One tenant takes all it can, another goes on (N2)",
		header: []string{"tool", "sessions", "calls", "failed", "p50 alone", "p50", "p99 alone", "p99", "p99", "slowest at the start", "target", "verdict"},
		note: fmt.Sprintf("Two tenants with a token each. One has so many sessions, each of which asks again as soon as it is answered. The other has one session, which calls every %s at most, "+
			"in turns of %s with the load and without; the time in which all the sessions call for the first time, at once, stands by itself. The slow capsule takes a millisecond for a call, one after the other. The load's own process has the lowest priority (nice 19), for its machine would be another one.", ordinaryPace, tenantTurns*b.scale.floodTurn),
	}
	for _, tool := range []string{slowCapsule, capsuleTool, simpleTool} {
		if err := b.tenantsRow(ctx, &t, dir, config, tool); err != nil {
			return nil, fmt.Errorf("%s: %w", tool, err)
		}
	}
	return []table{t}, nil
}

const (
	bigToken   = "the-token-of-the-large-tenant"
	smallToken = "the-token-of-the-small-tenant"
)

// tenantsConfig writes a configuration with two tokens.
func (b *bench) tenantsConfig() (file string, err error) {
	var config strings.Builder
	config.WriteString("auth:\n  tokens:\n")
	for name, token := range map[string]string{"big": bigToken, "small": smallToken} {
		path := filepath.Join(b.dir, name+".token")
		if err := os.WriteFile(path, []byte(token), 0o600); err != nil {
			return "", err
		}
		fmt.Fprintf(&config, "    - {name: %s, file: %q}\n", name, path)
	}
	file = filepath.Join(b.dir, "tenants.yaml")
	return file, os.WriteFile(file, []byte(config.String()), 0o600)
}

func (b *bench) tenantsRow(ctx context.Context, t *table, dir, config, tool string) error {
	s, err := b.start(ctx, append(b.orlaHTTP(dir), "--config", config)...)
	if err != nil {
		return err
	}
	defer s.stop()
	small, err := callersAs(ctx, s.host, tool, smallToken, 1)
	if err != nil {
		return err
	}
	defer hangUp(small)
	big, err := callersAs(ctx, s.host, tool, bigToken, b.scale.tenantSessions)
	if err != nil {
		return err
	}
	hangUp(big)
	var requests []byte
	for _, c := range big {
		requests = append(requests, c.request...)
	}
	load := []string{"nice", "-n", "19", b.flood, "-host", s.host, "-connections", fmt.Sprint(len(big)), "-size", fmt.Sprint(len(requests) / len(big))}
	others := [][]*caller{small}
	carryOn(others, b.scale.floodTurn) // to warm up
	var alone, loaded []time.Duration
	var first time.Duration // the slowest call while the load begins
	failed := 0
	for range b.scale.floodTurns {
		took, wrong := carryOn(others, tenantTurns*b.scale.floodTurn)
		end, err := b.startFlood(ctx, load, requests)
		if err != nil {
			return err
		}
		opening, wrongFirst := carryOn(others, b.scale.floodTurn/4)
		beside, wrongBeside := carryOn(others, tenantTurns*b.scale.floodTurn)
		if err := errors.Join(end(), rest(ctx, 3*b.scale.floodTurn)); err != nil {
			return err
		}
		alone, loaded = append(alone, took[0]...), append(loaded, beside[0]...)
		first = max(first, slices.Max(opening[0]))
		failed += wrong[0] + wrongFirst[0] + wrongBeside[0]
	}
	ratio := quotient(p99(loaded), p99(alone))
	t.add(tool, fmt.Sprint(len(big)), fmt.Sprint(len(loaded)), fmt.Sprint(failed), millis(median(alone)), millis(median(loaded)),
		millis(p99(alone)), millis(p99(loaded)), times(ratio), millis(first), "≤ "+times(maxTenants),
		verdict(check{"p99", ratio, maxTenants}, check{"answers", float64(failed), 0}))
	return nil
}
