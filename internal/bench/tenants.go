package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// maxTenants is how many times longer the slowest in a hundred calls of one tenant may
// take while another has all its sessions call without a pause.
const maxTenants = 3

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
		header: []string{"tool", "sessions", "calls", "failed", "p50 alone", "p50", "p99 alone", "p99", "p99", "target", "verdict"},
		note: fmt.Sprintf("Two tenants with a token each. One has so many sessions, each of which asks again as soon as it is answered. The other has one session, which calls every %s at most, "+
			"in turns of %s with the load and without. The slow capsule takes a millisecond for a call, one after the other. All share the machine with the load itself.", ordinaryPace, b.scale.floodTurn),
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
	defer hangUp(big)
	others := [][]*caller{small}
	carryOn(others, b.scale.floodTurn) // to warm up
	var alone, loaded []time.Duration
	failed := 0
	for range b.scale.floodTurns {
		took, wrong := carryOn(others, b.scale.floodTurn)
		end := callAll(big)
		beside, wrongBeside := carryOn(others, b.scale.floodTurn)
		end()
		alone, loaded = append(alone, took[0]...), append(loaded, beside[0]...)
		failed += wrong[0] + wrongBeside[0]
	}
	ratio := quotient(p99(loaded), p99(alone))
	t.add(tool, fmt.Sprint(len(big)), fmt.Sprint(len(loaded)), fmt.Sprint(failed), millis(median(alone)), millis(median(loaded)),
		millis(p99(alone)), millis(p99(loaded)), times(ratio), "≤ "+times(maxTenants),
		verdict(check{"p99", ratio, maxTenants}, check{"answers", float64(failed), 0}))
	return nil
}

// callAll has clients call without a pause until the function it returns is called.
func callAll(all []*caller) (end func()) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					_ = c.call() // a refusal is as good as an answer here
				}
			}
		})
	}
	return func() {
		close(over)
		wg.Wait()
	}
}
