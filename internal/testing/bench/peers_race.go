package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// race compares Orla with rivals, cell after cell, and goes on without those that fail.
type race struct {
	table    table
	plots    *plots
	budget   time.Duration // of a cell
	smallest int           // payload
	reasons  []string      // why cells have failed, each once
}

// cell measures one payload at one concurrency. Its error is not a rival's.
func (r *race) cell(ctx context.Context, p payload, inFlight int, relay, orla *contender, rivals []*rival) error {
	failed := map[*rival]error{}
	for {
		subjects := []subject{relay.subject(p), orla.subject(p)}
		var running []*rival
		for _, one := range rivals {
			if failed[one] != nil {
				continue
			}
			if err := one.ready(ctx); err != nil {
				failed[one] = err
				continue
			}
			running = append(running, one)
			subjects = append(subjects, one.now.subject(p))
		}
		results, err := compare(ctx, r.budget, inFlight, inFlight, subjects)
		if err == nil {
			r.fill(fmt.Sprintf("%s, %d", p, inFlight), orla.over, results, rivals, running, failed)
			for i, one := range running {
				if orla.over == withSession.name {
					r.plots.addCall(one.name, p, p.size == r.smallest, inFlight, results[2+i], results[0])
				}
			}
			return nil
		}
		var of *subjectError
		errors.As(err, &of)
		i := slices.IndexFunc(running, func(one *rival) bool { return of != nil && one.name == of.name })
		if i < 0 || ctx.Err() != nil {
			return err
		}
		failed[running[i]] = of.err
		running[i].close() // what it still has in flight is not for the next cell
	}
}

// fill adds a row for the relay and for each rival.
func (r *race) fill(cell, over string, results []result, rivals, running []*rival, failed map[*rival]error) {
	orla := results[1]
	row := func(over, name string, other result) []string {
		return []string{
			cell, over, name, micros(other.p50), micros(orla.p50), times(orla.against(other)),
			micros(other.cpu.total()), micros(orla.cpu.total()), times(quotient(orla.cpu.total(), other.cpu.total())),
		}
	}
	r.table.add(append(row(over, "relay", results[0]), "")...)
	for _, one := range rivals {
		if err := failed[one]; err != nil {
			r.table.add(cell, one.over, one.name, "failed", micros(orla.p50), "-", "failed", micros(orla.cpu.total()), "-",
				fmt.Sprintf("failed (%d)", r.reason(one.name, err)))
			continue
		}
		other := results[2+slices.Index(running, one)]
		r.table.add(append(row(one.over, one.name, other), ahead(orla, other))...)
	}
}

// ahead says whether Orla takes less than another, and of what it does not.
func ahead(orla, other result) string {
	var behind []string
	if orla.against(other) >= 1 {
		behind = append(behind, "p50")
	}
	if orla.cpu.total() >= other.cpu.total() {
		behind = append(behind, "CPU")
	}
	if behind == nil {
		return "ahead"
	}
	return "BEHIND " + strings.Join(behind, ", ")
}

// reason returns the number of the footnote that says why a rival has failed.
func (r *race) reason(name string, err error) int {
	text := name + ": " + oneLine(err)
	if !slices.Contains(r.reasons, text) {
		r.reasons = append(r.reasons, text)
	}
	return slices.Index(r.reasons, text) + 1
}

func (r *race) footnotes() string {
	var b strings.Builder
	for i, text := range r.reasons {
		fmt.Fprintf(&b, "\n\n(%d) %s", i+1, text)
	}
	return b.String()
}
