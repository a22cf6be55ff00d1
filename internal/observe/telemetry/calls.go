package telemetry

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/mcpbridge"
)

// Latency is the number of a tool's calls and how long they take.
type Latency struct {
	Calls  int64 // since the tool exists
	Errors int64 // the failed ones of Calls
	// P50 and P99 are quantiles of the most recent calls; 0 if there are none.
	P50, P99 time.Duration
}

// recent is how many calls of a tool the quantiles cover.
const recent = 256

// unknown is the label for calls of tools that do not exist, since clients can make up any number of
// names. It is not a valid tool name.
const unknown = "(unknown)"

// calls counts calls by tool. Tools that are removed are forgotten.
type calls struct {
	tools   func() []string
	codes   codes
	unknown *series

	mu     sync.RWMutex // guards the fields that follow
	byTool map[string]*series
	most   int // number of series at which to look for those of removed tools
}

func newCalls(tools func() []string) *calls {
	known := knownCodes()
	return &calls{tools: tools, codes: known, unknown: newSeries(known), byTool: map[string]*series{}, most: fewSeries}
}

// fewSeries is a number of series at which looking for old ones is not worthwhile.
const fewSeries = 64

// of returns the series of a tool.
func (c *calls) of(tool string, listed bool) *series {
	if !listed {
		return c.unknown
	}
	c.mu.RLock()
	s := c.byTool[tool]
	full := s == nil && len(c.byTool) >= c.most
	c.mu.RUnlock()
	if s != nil {
		return s
	}
	if full {
		c.forget()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s = c.byTool[tool]; s == nil {
		s = newSeries(c.codes)
		c.byTool[tool] = s
	}
	return s
}

// forget removes the series of tools that were removed. A call that is still in flight is counted in
// a series that nobody sees.
func (c *calls) forget() {
	c.mu.RLock()
	before := maps.Clone(c.byTool) // a series that is added later may belong to a tool that the list below does not have yet
	c.mu.RUnlock()
	for _, tool := range c.tools() {
		delete(before, tool)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for tool, gone := range before {
		if c.byTool[tool] == gone {
			delete(c.byTool, tool)
		}
	}
	// Twice as many as are left, so that looking costs a constant time per new tool.
	c.most = max(fewSeries, 2*len(c.byTool))
}

// known returns the series of the existing tools, by name.
func (c *calls) known() map[string]*series {
	c.forget()
	return c.all()
}

// all returns the series of these tools, and of those that were removed since forget was called.
func (c *calls) all() map[string]*series {
	c.mu.RLock()
	defer c.mu.RUnlock()
	all := maps.Clone(c.byTool)
	all[unknown] = c.unknown
	return all
}

func (c *calls) latencies(tools []string) Latency {
	var l Latency
	var took []uint32
	for _, tool := range tools {
		c.mu.RLock()
		s := c.byTool[tool]
		c.mu.RUnlock()
		if s != nil {
			took = s.latencies(&l, took)
		}
	}
	if len(took) > 0 {
		slices.Sort(took)
		l.P50, l.P99 = quantile(took, 50), quantile(took, 99)
	}
	return l
}

// quantile is the least of the sorted values that percent of them do not exceed.
func quantile(sorted []uint32, percent int) time.Duration {
	at := (len(sorted)*percent + 99) / 100
	return time.Duration(sorted[at-1]) * time.Microsecond
}

// buckets are the upper bounds of the histogram, in seconds: from a capsule's call to the longest
// that people wait.
var buckets = [...]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// bucketOf returns the index of the first bound that a duration does not exceed.
func bucketOf(bounds []float64, d time.Duration) int {
	at, _ := slices.BinarySearch(bounds, d.Seconds())
	return at
}

// series counts the calls of one tool.
type series struct {
	mu       sync.Mutex // guards the fields that follow
	ended    []uint64   // by code
	retries  uint64     // attempts after the first
	buckets  [len(buckets) + 1]uint64
	took     time.Duration // sum of the durations
	request  uint64        // bytes
	response uint64        // bytes
	last     []uint32      // microseconds of the last calls; a ring once it is full
	next     int           // index in last for the next call
	minutes  []keptTool    // of the last hour, those with calls
}

func newSeries(c codes) *series { return &series{ended: make([]uint64, len(c.names))} }

// add counts a call that has ended.
func (s *series) add(now time.Time, request, code int, end mcpbridge.CallEnd) {
	bucket := bucketOf(buckets[:], end.Took)
	micros := microsOf(end.Took)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended[code]++
	s.addMinute(now, micros, code != ok)
	s.retries += uint64(max(0, end.Attempts-1))
	s.buckets[bucket]++
	s.took += end.Took
	s.request += uint64(request)
	s.response += uint64(end.ResponseBytes)
	if len(s.last) < recent {
		s.last = append(s.last, micros)
		return
	}
	s.last[s.next] = micros
	s.next = (s.next + 1) % recent
}

// microsOf is a duration in microseconds, as far as they fit.
func microsOf(d time.Duration) uint32 { return uint32(min(max(d.Microseconds(), 0), 1<<32-1)) }

// latencies adds the tool's calls to l, and its recent durations to took.
func (s *series) latencies(l *Latency, took []uint32) []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	for code, n := range s.ended {
		l.Calls += int64(n)
		if code != ok {
			l.Errors += int64(n)
		}
	}
	return append(took, s.last...)
}

// counted is a copy of a series.
type counted struct {
	ended             []uint64
	retries           uint64
	buckets           [len(buckets) + 1]uint64
	took              time.Duration
	request, response uint64
}

func (s *series) counted() counted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return counted{slices.Clone(s.ended), s.retries, s.buckets, s.took, s.request, s.response}
}

// codes are the values of the label code: how a call can end.
type codes struct {
	names []string
	at    map[string]int
}

const (
	ok      = 0 // the index for successful calls
	okCode  = "ok"
	anyCode = "other" // a code that a tool made up, or the number of a JSON-RPC error
)

func knownCodes() codes {
	c := codes{names: []string{okCode}, at: map[string]int{}}
	for _, code := range fault.Codes() {
		c.names = append(c.names, string(code))
	}
	c.names = append(c.names, anyCode)
	for i, name := range c.names {
		c.at[name] = i
	}
	return c
}

// of returns the index for a call's code.
func (c codes) of(end mcpbridge.CallEnd) int {
	if end.OK {
		return ok
	}
	if at, known := c.at[end.Code]; known && at != ok {
		return at
	}
	return len(c.names) - 1
}
