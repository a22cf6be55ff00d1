package main

import (
	"fmt"
	"slices"
	"strings"
)

// curve is one of the numbers that have to stay flat.
type curve struct {
	name string
	unit string
	of   func(sample) float64
	per  float64 // how many of its own units are one unit
	// What the last quarter may have more than the second one: so many times as much, and so many units more.
	times, more float64
	rank        float64 // which of the sorted samples of a quarter is compared: 0 the least, 0.5 the median
}

// The first quarter does not count: caches fill, and the heap reaches its size. The p99 depends on what else the
// machine does, so it is shown and not judged. Memory has garbage in it, more or less of it at each moment, which is given
// back in between (decision 0029): a leak raises what is left, so that the samples with the least memory are compared.
var curves = []curve{
	{name: "memory", unit: "MiB", of: func(s sample) float64 { return s.rss }, per: 1 << 20, times: 1.1, more: 4, rank: 0.25},
	{name: "descriptors", unit: "", of: func(s sample) float64 { return s.fds }, per: 1, times: 1.1, more: 8, rank: 0.5},
	{name: "goroutines", unit: "", of: func(s sample) float64 { return s.goroutines }, per: 1, times: 1.1, more: 16, rank: 0.5},
	{name: "state folder", unit: "KiB", of: func(s sample) float64 { return s.disk }, per: 1 << 10, times: 1.1, more: 600, rank: 0.5},
	{name: "p50 of a call", unit: "ms", of: func(s sample) float64 { return s.p50 }, per: 1e-3, times: 1.3, more: 0.5, rank: 0.5},
	{name: "p99 of a call", unit: "ms", of: func(s sample) float64 { return s.p99 }, per: 1e-3, rank: 0.5},
}

// leastSamples is how many samples are needed for four quarters that say something.
const leastSamples = 16

// judge compares the last quarter of the samples with the second one.
func judge(all []sample) (report string, flat bool) {
	if len(all) < leastSamples {
		return fmt.Sprintf("%d samples are too few to judge by; %d are needed\n", len(all), leastSamples), false
	}
	var b strings.Builder
	flat = true
	n := len(all)
	for _, c := range curves {
		before, after := c.typical(all[n/4:n/2]), c.typical(all[n*3/4:])
		word := "flat"
		switch {
		case c.times == 0:
			word = "not judged"
		case after > before*c.times+c.more:
			word, flat = "GROWS", false
		}
		fmt.Fprintf(&b, "%-14s %9.1f -> %9.1f %-4s %s\n", c.name, before, after, c.unit, word)
	}
	return b.String(), flat
}

// typical returns the number that is compared, in units, of the samples that have it.
func (c curve) typical(of []sample) float64 {
	var all []float64
	for _, s := range of {
		if v := c.of(s); v > 0 {
			all = append(all, v/c.per)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(c.rank*float64(len(all)))]
}
