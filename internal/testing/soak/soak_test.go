package main

import (
	"strings"
	"testing"
	"time"
)

// samplesOf returns samples of which a number is made by of, and the others are constant.
func samplesOf(n int, change func(s *sample, i int)) (all []sample) {
	for i := range n {
		s := sample{at: time.Duration(i) * time.Second, rss: 50 << 20, fds: 60, goroutines: 100, disk: 30 << 10, p50: 0.001, p99: 0.02}
		change(&s, i)
		all = append(all, s)
	}
	return all
}

// SPEC Q3: what grows is found, and what only varies or has grown at the begin is not.
func TestQ3Verdict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(s *sample, i int)
		flat   bool
	}{
		"constant":           {func(*sample, int) {}, true},
		"full caches":        {func(s *sample, i int) { s.rss = float64(min(i, 20) * 4 << 20) }, true},
		"one peak":           {func(s *sample, i int) { s.fds += float64(i / 99 * 500) }, true},
		"a slow machine":     {func(s *sample, i int) { s.p99 = float64(i) }, true},
		"leaked memory":      {func(s *sample, i int) { s.rss += float64(i * 300 << 10) }, false},
		"more garbage":       {func(s *sample, i int) { s.rss += float64(i % 10 / 4 * i << 18) }, true},
		"leak and garbage":   {func(s *sample, i int) { s.rss += float64((i % 7 * 20 << 20) + i*300<<10) }, false},
		"leaked descriptors": {func(s *sample, i int) { s.fds += float64(i) / 2 }, false},
		"leaked goroutines":  {func(s *sample, i int) { s.goroutines += float64(i) }, false},
		"a growing folder":   {func(s *sample, i int) { s.disk += float64(i * 20 << 10) }, false},
		"slower calls":       {func(s *sample, i int) { s.p50 += float64(i) * 0.0001 }, false},
	} {
		report, flat := judge(samplesOf(100, c.change))
		if flat != c.flat || strings.Contains(report, "GROWS") == c.flat {
			t.Errorf("%s: flat is %t:\n%s", name, flat, report)
		}
	}
	if _, flat := judge(samplesOf(leastSamples-1, func(*sample, int) {})); flat {
		t.Error("too few samples are flat")
	}
}

func TestQ3Chart(t *testing.T) {
	t.Parallel()
	drawn := chart(samplesOf(100, func(*sample, int) {}), time.Hour)
	if n := strings.Count(drawn, "<polyline"); n != len(curves) || !strings.HasSuffix(drawn, "</svg>\n") {
		t.Errorf("%d curves: %s", n, drawn)
	}
}

// SPEC Q3: only an answer without an error is one.
func TestQ3Answers(t *testing.T) {
	t.Parallel()
	for raw, ok := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`:                                     true,
		"event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[]}}\n\n": true,
		`{"jsonrpc":"2.0","id":1,"result":{"content":[],"isError":true}}`:                      false,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}`:                            false,
		`{"jsonrpc":"2.0","method":"notifications/message"}`:                                   false,
		"session not found": false,
	} {
		if _, err := resultIn([]byte(raw)); (err == nil) != ok {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
