package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sample is what Orla uses at one moment.
type sample struct {
	at         time.Duration // since the begin
	rss        float64       // bytes
	fds        float64
	goroutines float64
	disk       float64 // bytes in the state folder
	p50, p99   float64 // seconds of the small calls since the sample before; 0 if there were none
}

// measure takes a sample, without latencies.
func (w *world) measure() (s sample, err error) {
	resp, err := http.Get(strings.TrimSuffix(w.url, "/mcp") + "/metrics") //nolint:noctx // on loopback, of an Orla that is watched
	if err != nil {
		return s, err
	}
	defer func() { _ = resp.Body.Close() }()
	into := map[string]*float64{"process_resident_memory_bytes": &s.rss, "process_open_fds": &s.fds, "go_goroutines": &s.goroutines}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if to := into[name]; to != nil {
			if *to, err = strconv.ParseFloat(value, 64); err != nil {
				return s, err
			}
		}
	}
	if s.rss == 0 || s.fds == 0 || s.goroutines == 0 {
		return s, fmt.Errorf("/metrics lacks one of its numbers: %+v", s)
	}
	s.disk = sizeOf(w.state())
	return s, nil
}

// sizeOf returns the bytes of the files in a folder. Files that go away meanwhile do not count.
func sizeOf(dir string) (total float64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			if info, gone := d.Info(); gone == nil {
				total += float64(info.Size())
			}
		}
		return nil
	})
	return total
}

// counts are what clients and events did. Its methods may be called from any goroutine.
type counts struct {
	mu     sync.Mutex // guards the fields that follow
	calls  map[string]int
	events map[string]int
	wrong  []string // the first failures
	failsN int
	times  []time.Duration // of small calls since latencies was called
}

// maxWrong bounds the failures that are kept.
const maxWrong = 20

func (c *counts) called(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[kind]++
}

func (c *counts) happened(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[kind]++
}

func (c *counts) took(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times = append(c.times, d)
}

func (c *counts) fail(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failsN++
	if len(c.wrong) < maxWrong {
		c.wrong = append(c.wrong, kind+": "+err.Error())
	}
}

func (c *counts) failed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failsN
}

func (c *counts) firstFailure() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.wrong) == 0 {
		return ""
	}
	return c.wrong[0]
}

// latencies returns the p50 and the p99 of the small calls since it was called last.
func (c *counts) latencies() (p50, p99 float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	times := c.times
	c.times = nil
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	at := func(q float64) float64 { return times[int(q*float64(len(times)-1))].Seconds() }
	return at(0.5), at(0.99)
}

// String says how often what happened.
func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, of := range []map[string]int{c.calls, c.events} {
		for _, kind := range slices.Sorted(maps.Keys(of)) {
			fmt.Fprintf(&b, "%8d  %s\n", of[kind], kind)
		}
	}
	fmt.Fprintf(&b, "%8d  failed\n", c.failsN)
	for _, w := range c.wrong {
		fmt.Fprintf(&b, "          %s\n", w)
	}
	return b.String()
}
