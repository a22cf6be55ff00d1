package telemetry

import (
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
)

// The numbers of the last hour, which the console draws. A sample exists only for a time in which a call ended, so
// that an idle Orla has none, and no timer. One of all tools is for SampleStep, and one of a tool for ToolStep.
const (
	SampleStep = 10 * time.Second
	ToolStep   = time.Minute
	sampled    = time.Hour
)

// Sample is what happened in a SampleStep. Memory is of its end.
type Sample struct {
	At            time.Time // its begin
	Calls, Errors int64     // calls that ended
	P50, P99      time.Duration
	Memory        int64 // of all capsules; 0 if it is not known
	Own           int64 // of Orla; 0 if it is not known
}

// ToolSample is what happened to a tool in a ToolStep.
type ToolSample struct {
	At            time.Time
	Calls, Errors int64
	Took          time.Duration // of all calls together
	Longest       time.Duration
}

// MemorySample is the memory of a capsule at some time in a ToolStep.
type MemorySample struct {
	At     time.Time
	Memory int64
}

// The kept forms, which are smaller.
type (
	keptSample struct{ at, calls, errors, p50, p99, memory, own uint32 } // steps since 1970, numbers, microseconds, KiB
	keptTool   struct {
		at, calls, errors, longest uint32
		took                       uint64
	}
	keptMemory struct{ at, memory uint32 }
)

// numbers keeps the samples of all tools, and the memory of capsules.
type numbers struct {
	usage func() map[string]Usage // may be nil
	own   func() int64            // may be nil
	log   *slog.Logger

	mu       sync.Mutex // guards the fields that follow
	samples  []keptSample
	took     histogram // of the last of samples
	memory   map[string][]keptMemory
	measured uint32 // the step in which memory was measured last
	timer    *time.Timer
	closed   bool
}

// histogram counts durations by their size: four classes for each doubling of the microseconds.
type histogram [33 * 4]uint32

func classOf(micros uint32) int {
	if micros < 4 {
		return int(micros)
	}
	n := bits.Len32(micros)
	return n*4 + int(micros>>(n-3))&3
}

// middle is the middle of a class, in microseconds.
func middle(class int) uint32 {
	if class < 4 {
		return uint32(class)
	}
	n := class / 4
	least := uint64(4+class%4) << (n - 3)
	return uint32(least + uint64(1)<<(n-3)/2)
}

// quantile returns the least class that percent of n durations do not exceed, in microseconds.
func (h *histogram) quantile(n uint32, percent uint64) uint32 {
	at := (uint64(n)*percent + 99) / 100
	for class, count := range h {
		if at <= uint64(count) {
			return middle(class)
		}
		at -= uint64(count)
	}
	return 0
}

func stepOf(t time.Time, step time.Duration) uint32 {
	return uint32(t.Unix() / int64(step/time.Second))
}

func timeOf(at uint32, step time.Duration) time.Time {
	return time.Unix(int64(at)*int64(step/time.Second), 0)
}

// add counts a call that has ended.
func (n *numbers) add(now time.Time, micros uint32, failed bool) {
	at := stepOf(now, SampleStep)
	n.mu.Lock()
	defer n.mu.Unlock()
	last := n.last(at, now)
	last.calls++
	if failed {
		last.errors++
	}
	n.took[classOf(micros)]++
}

// last returns the sample of a step, and begins it if need be. The caller holds mu.
func (n *numbers) last(at uint32, now time.Time) *keptSample {
	if k := len(n.samples); k > 0 && n.samples[k-1].at >= at { // also if the clock was set back
		return &n.samples[k-1]
	}
	n.settle()
	n.took = histogram{}
	n.samples = append(trimmed(n.samples, func(s keptSample) bool { return at-s.at >= uint32(sampled/SampleStep) }), keptSample{at: at})
	n.measureAfter(at, now)
	return &n.samples[len(n.samples)-1]
}

// measureAfter measures the memory when a step is over. The caller holds mu.
func (n *numbers) measureAfter(at uint32, now time.Time) {
	if n.usage == nil || n.closed {
		return
	}
	n.timer = time.AfterFunc(timeOf(at+1, SampleStep).Sub(now), func() {
		defer recovered.To(n.log, "measure memory", nil)
		n.measure(at)
	})
}

// settle computes the quantiles of the last sample. The caller holds mu.
func (n *numbers) settle() {
	if k := len(n.samples); k > 0 {
		s := &n.samples[k-1]
		s.p50, s.p99 = n.took.quantile(s.calls, 50), n.took.quantile(s.calls, 99)
	}
}

// trimmed removes what is old from the beginning of a list, in place.
func trimmed[T any](list []T, old func(T) bool) []T {
	i := 0
	for i < len(list) && old(list[i]) {
		i++
	}
	if i == 0 {
		return list
	}
	return slices.Delete(list, 0, i)
}

// measure notes the memory of every capsule, and of Orla, in the sample of a step and in that of each capsule.
func (n *numbers) measure(step uint32) {
	if n.usage == nil {
		return
	}
	usage, own := n.usage(), int64(0)
	if n.own != nil {
		own = n.own()
	}
	now := time.Now()
	minute := stepOf(now, ToolStep)
	old := func(m keptMemory) bool { return minute-m.at >= uint32(sampled/ToolStep) }
	n.mu.Lock()
	defer n.mu.Unlock()
	n.measured = max(n.measured, step)
	var all int64
	for name, u := range usage {
		all += u.Memory
		list := trimmed(n.memory[name], old)
		if k := len(list); k > 0 && list[k-1].at >= minute {
			list[k-1].memory = kib(u.Memory)
		} else {
			list = append(list, keptMemory{minute, kib(u.Memory)})
		}
		n.memory[name] = list
	}
	for name, list := range n.memory {
		if list = trimmed(list, old); len(list) == 0 {
			delete(n.memory, name)
		} else {
			n.memory[name] = list
		}
	}
	for i := len(n.samples) - 1; i >= 0 && n.samples[i].at >= step; i-- {
		if s := &n.samples[i]; s.at == step {
			s.memory, s.own = kib(all), kib(own)
		}
	}
}

func kib(n int64) uint32 { return uint32(min((n+1023)>>10, 1<<32-1)) }

// look begins a sample of now, and measures the memory, unless that was done in this step.
func (n *numbers) look() {
	now := time.Now()
	at := stepOf(now, SampleStep)
	n.mu.Lock()
	due := n.measured < at
	n.last(at, now)
	n.mu.Unlock()
	if due {
		n.measure(at)
	}
}

// close ends the timer.
func (n *numbers) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.timer != nil {
		n.timer.Stop()
	}
}

// Numbers returns the samples of the last hour, the oldest first. Times in which no call ended and nobody looked have
// none.
func (t *Telemetry) Numbers() (samples []Sample, memory map[string][]MemorySample) {
	n := &t.numbers
	n.look()
	first := stepOf(time.Now(), SampleStep) - uint32(sampled/SampleStep)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.settle()
	for _, s := range n.samples {
		if s.at > first {
			samples = append(samples, Sample{
				At: timeOf(s.at, SampleStep), Calls: int64(s.calls), Errors: int64(s.errors),
				P50: micros(s.p50), P99: micros(s.p99), Memory: int64(s.memory) << 10, Own: int64(s.own) << 10,
			})
		}
	}
	memory = make(map[string][]MemorySample, len(n.memory))
	for name, list := range n.memory {
		for _, m := range list {
			memory[name] = append(memory[name], MemorySample{timeOf(m.at, ToolStep), int64(m.memory) << 10})
		}
	}
	return samples, memory
}

func micros[T uint32 | uint64](n T) time.Duration { return time.Duration(n) * time.Microsecond }

// ToolNumbers returns the samples of the last hour of some tools, taken together.
func (t *Telemetry) ToolNumbers(tools ...string) []ToolSample {
	first := stepOf(time.Now(), ToolStep) - uint32(sampled/ToolStep)
	at := map[uint32]*ToolSample{}
	for _, tool := range tools {
		t.calls.mu.RLock()
		s := t.calls.byTool[tool]
		t.calls.mu.RUnlock()
		if s == nil {
			continue
		}
		s.mu.Lock()
		for _, m := range s.minutes {
			if m.at <= first {
				continue
			}
			one := at[m.at]
			if one == nil {
				one = &ToolSample{At: timeOf(m.at, ToolStep)}
				at[m.at] = one
			}
			one.Calls += int64(m.calls)
			one.Errors += int64(m.errors)
			one.Took += micros(m.took)
			one.Longest = max(one.Longest, micros(m.longest))
		}
		s.mu.Unlock()
	}
	list := make([]ToolSample, 0, len(at))
	for _, one := range at {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b ToolSample) int { return a.At.Compare(b.At) })
	return list
}

// addMinute counts a call in the tool's sample. The caller holds mu.
func (s *series) addMinute(now time.Time, took uint32, failed bool) {
	at := stepOf(now, ToolStep)
	if k := len(s.minutes); k == 0 || s.minutes[k-1].at < at {
		s.minutes = append(trimmed(s.minutes, func(m keptTool) bool { return at-m.at >= uint32(sampled/ToolStep) }), keptTool{at: at})
	}
	m := &s.minutes[len(s.minutes)-1]
	m.calls++
	if failed {
		m.errors++
	}
	m.longest = max(m.longest, took)
	m.took += uint64(took)
}
