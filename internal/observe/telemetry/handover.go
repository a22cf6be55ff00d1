package telemetry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

const (
	// stateVersion is the version of a state. Fields may be added to a version. Any other change makes a new one, and
	// the release after it reads both.
	stateVersion = 1
	// maxRecent bounds how many numbers a state has of recent calls and of the last hour. What it counts since the start
	// depends on the number of tools alone.
	maxRecent = 500_000
)

// state is what one program gives to the next one in the same process (SPEC Q1, docs/decisions/0051). Counts go on,
// so that nobody sees a counter fall, and so does the last hour.
type state struct {
	Version   int                    `json:"version"`
	Bounds    []float64              `json:"bounds"` // of the histograms of calls
	Tools     map[string]toolState   `json:"tools"`  // with those that are unknown
	Reloads   map[string]uint64      `json:"reloads"`
	Approvals map[string]uint64      `json:"approvals"`
	Waits     waitState              `json:"waits"`
	Dropped   int64                  `json:"dropped,omitempty"`
	Samples   []sampleRow            `json:"samples,omitempty"`
	Last      map[int]uint32         `json:"last,omitempty"` // the classes of the last sample with calls
	Memory    map[string][]memoryRow `json:"memory,omitempty"`
}

// The kept forms of numbers, with their fields in order.
type (
	sampleRow [7]uint32
	memoryRow [2]uint32
	minuteRow [5]uint64
)

func (s keptSample) row() sampleRow {
	return sampleRow{s.at, s.calls, s.errors, s.p50, s.p99, s.memory, s.own}
}

func (r sampleRow) kept() keptSample { return keptSample{r[0], r[1], r[2], r[3], r[4], r[5], r[6]} }

func (m keptMemory) row() memoryRow { return memoryRow{m.at, m.memory} }

func (r memoryRow) kept() keptMemory { return keptMemory{r[0], r[1]} }

func (m keptTool) row() minuteRow {
	return minuteRow{uint64(m.at), uint64(m.calls), uint64(m.errors), uint64(m.longest), m.took}
}

func (r minuteRow) kept() keptTool {
	return keptTool{uint32(r[0]), uint32(r[1]), uint32(r[2]), uint32(r[3]), r[4]}
}

// toolState is a series.
type toolState struct {
	Ended    map[string]uint64 `json:"ended"` // by code, those with calls
	Retries  uint64            `json:"retries,omitempty"`
	Buckets  []uint64          `json:"buckets"`
	Took     time.Duration     `json:"took"`
	Request  uint64            `json:"request"`
	Response uint64            `json:"response"`
	Last     []uint32          `json:"last,omitempty"` // microseconds of the last calls, the oldest first
	Minutes  []minuteRow       `json:"minutes,omitempty"`
}

// waitState is how long people took to decide.
type waitState struct {
	Bounds []float64     `json:"bounds"`
	Counts []uint64      `json:"counts"`
	Sum    time.Duration `json:"sum"`
}

// Give returns what the next program goes on with. No call may be in flight.
func (t *Telemetry) Give() []byte {
	waited, sum := t.waits()
	s := state{
		Version: stateVersion, Bounds: buckets[:], Tools: map[string]toolState{},
		Reloads: t.reloads.counts(), Approvals: t.ended.counts(), Waits: waitState{waitBounds[:], waited[:], sum},
		Dropped: t.dropped.Load(), Last: map[int]uint32{}, Memory: map[string][]memoryRow{},
	}
	if t.opts.Dropped != nil {
		s.Dropped += t.opts.Dropped()
	}
	t.numbers.give(&s)
	left := maxRecent - len(sampleRow{})*len(s.Samples)
	all := t.calls.all()
	for _, tool := range byLastCall(all) {
		one := all[tool].give(t.calls.codes.names)
		if left -= len(one.Last) + len(minuteRow{})*len(one.Minutes); left < 0 {
			one.Last, one.Minutes = nil, nil
		}
		s.Tools[tool] = one
	}
	for name, of := range s.Memory {
		if left -= len(memoryRow{}) * len(of); left < 0 {
			delete(s.Memory, name)
		}
	}
	raw, err := json.Marshal(s)
	if err != nil { // strings and numbers
		panic(err)
	}
	return raw
}

// Take goes on with what the program before has given. It is called before the first call. After an error, nothing
// of it is taken.
func (t *Telemetry) Take(given []byte) error {
	var s state
	if err := json.Unmarshal(given, &s); err != nil {
		return err
	}
	if s.Version != stateVersion {
		return fmt.Errorf("it has version %d; this is version %d", s.Version, stateVersion)
	}
	t.calls.take(&s)
	for result, n := range s.Reloads {
		t.reloads.add(result, n)
	}
	for result, n := range s.Approvals {
		t.ended.add(result, n)
	}
	t.dropped.Add(s.Dropped)
	t.takeWaits(s.Waits)
	t.numbers.take(&s)
	return nil
}

// take adds the series of the program before. None is looked for among the tools that there are: they are not known yet.
func (c *calls) take(given *state) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sameBounds := slices.Equal(given.Bounds, buckets[:])
	for tool, one := range given.Tools {
		of := c.unknown
		if tool != unknown {
			of = newSeries(c.codes)
			c.byTool[tool] = of
		}
		of.take(&one, c.codes, sameBounds)
	}
	c.most = max(fewSeries, 2*len(c.byTool))
}

// byLastCall returns the names of series, those with the last calls first.
func byLastCall(all map[string]*series) []string {
	last := make(map[string]uint32, len(all))
	for tool, s := range all {
		s.mu.Lock()
		if k := len(s.minutes); k > 0 {
			last[tool] = s.minutes[k-1].at
		}
		s.mu.Unlock()
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(last[b], last[a]) })
}

func (s *series) give(codes []string) toolState {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := toolState{
		Ended: map[string]uint64{}, Retries: s.retries, Buckets: slices.Clone(s.buckets[:]), Took: s.took,
		Request: s.request, Response: s.response,
		Last: slices.Concat(s.last[s.next:], s.last[:s.next]), Minutes: mapped(s.minutes, keptTool.row),
	}
	for code, n := range s.ended {
		if n > 0 {
			given.Ended[codes[code]] = n
		}
	}
	return given
}

// take adds what a series of the program before has. A histogram with other bounds is left out.
func (s *series) take(given *toolState, known codes, sameBounds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for code, n := range given.Ended {
		at, ok := known.at[code]
		if !ok {
			at = len(known.names) - 1
		}
		s.ended[at] += n
	}
	s.retries, s.request, s.response = given.Retries, given.Request, given.Response
	if sameBounds && len(given.Buckets) == len(s.buckets) {
		copy(s.buckets[:], given.Buckets)
		s.took = given.Took
	}
	s.last, s.next = given.Last[max(0, len(given.Last)-recent):], 0
	s.minutes = inOrder(mapped(given.Minutes, minuteRow.kept), func(m keptTool) uint32 { return m.at }, ToolStep)
}

func (t *Telemetry) takeWaits(given waitState) {
	if !slices.Equal(given.Bounds, waitBounds[:]) || len(given.Counts) != len(t.waited) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	copy(t.waited[:], given.Counts)
	t.sum = given.Sum
}

func (n *numbers) give(s *state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	s.Samples = mapped(n.samples, keptSample.row)
	for class, count := range n.took {
		if count > 0 {
			s.Last[class] = count
		}
	}
	for name, list := range n.memory {
		s.Memory[name] = mapped(list, keptMemory.row)
	}
}

func (n *numbers) take(s *state) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.samples = inOrder(mapped(s.Samples, sampleRow.kept), func(k keptSample) uint32 { return k.at }, SampleStep)
	for class, count := range s.Last {
		if class >= 0 && class < len(n.took) {
			n.took[class] = count
		}
	}
	for name, of := range s.Memory {
		n.memory[name] = inOrder(mapped(of, memoryRow.kept), func(m keptMemory) uint32 { return m.at }, ToolStep)
	}
	now := time.Now()
	if k := len(n.samples); k > 0 && n.samples[k-1].at == stepOf(now, SampleStep) {
		n.measureAfter(n.samples[k-1].at, now)
	}
}

// mapped returns what f makes of each of a list.
func mapped[From, To any](list []From, f func(From) To) []To {
	all := make([]To, len(list))
	for i, one := range list {
		all[i] = f(one)
	}
	return all
}

// inOrder returns the last hour of a list if its times rise, and lie in the past; else nothing. The rest of the package
// relies on that.
func inOrder[T any](list []T, at func(T) uint32, step time.Duration) []T {
	now := stepOf(time.Now(), step)
	for i := range list {
		if at(list[i]) > now || i > 0 && at(list[i]) <= at(list[i-1]) {
			return nil
		}
	}
	return trimmed(list, func(one T) bool { return now-at(one) >= uint32(sampled/step) })
}
