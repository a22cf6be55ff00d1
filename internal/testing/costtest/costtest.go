// Package costtest fails tests of code whose cost grows faster than its input
// (SPEC S1): it runs n and 2n and compares CPU time and memory. Only tests import it.
//
// CPU time is what the kernel accounts to the process, so other programs on the
// machine do not count. Tests that use Check must not run in parallel with others of
// their process; those that Compare what another process took may.
package costtest

import (
	"runtime"
	"testing"
	"time"
)

const (
	// Factor is how much more 2n may cost than n: 2 is proportional, 4 is quadratic.
	Factor = 3
	// clear is how much more 2n may cost than n for two rounds to be enough: what is
	// quadratic would have to be measured wrong by 60 % in both.
	clear = 2.5
	// floor is the CPU time below which a factor says nothing.
	floor = 2 * time.Millisecond
	// enough is the CPU time that n is repeated to, so that the factor is not noise.
	enough = 15 * time.Millisecond
	// long is the CPU time from which one round is enough.
	long = 3 * enough
	// bytesFloor is how many allocated bytes a factor says nothing below.
	bytesFloor = 1 << 20
	// rounds is how often each size is measured at most. The cheapest round counts.
	rounds = 5
	// tries is how often work that seems to cost too much is measured, each time for
	// longer: on a busy machine a round of few milliseconds may be one collection more.
	tries = 3
)

// Cost is what one run took.
type Cost struct {
	CPU   time.Duration // of all threads, in user and kernel mode
	Bytes uint64        // allocated
}

// Check prepares work of size n and of size 2n, runs both, and fails the test if
// the larger one takes more than Factor times the CPU time or the memory. What
// prepare does is not measured. It may be called several times, and run as well.
func Check(t *testing.T, n int, prepare func(n int) (run func())) {
	t.Helper()
	if testing.Short() {
		t.Skip("SKIPPED: it measures for a while")
	}
	cost, double := costs(n, tries, prepare)
	Compare(t, n, cost, double)
}

// costs returns what work of size n and of size 2n cost, measured up to so many times.
func costs(n, tries int, prepare func(n int) (run func())) (cost, double Cost) {
	small, large := prepare(n), prepare(2*n)
	repeat := 1
	for Measure(small, repeat).CPU < enough && repeat < 1<<14 {
		repeat *= 2
	}
	for range tries {
		for round := range rounds {
			a, b := Measure(small, repeat), Measure(large, repeat)
			if round == 0 {
				cost, double = a, b
				if a.CPU >= long && double.Clearly(cost) {
					break
				}
				continue
			}
			cost = Cost{min(cost.CPU, a.CPU), min(cost.Bytes, a.Bytes)}
			double = Cost{min(double.CPU, b.CPU), min(double.Bytes, b.Bytes)}
			if double.Clearly(cost) {
				break
			}
		}
		if double.Within(cost) {
			break
		}
		repeat *= 4
	}
	return cost, double
}

// Within reports whether c, the cost of 2n, is at most Factor times that of n.
func (c Cost) Within(n Cost) bool { return c.within(n, Factor) }

// Clearly reports whether it is so far from being too much that it need not be measured again.
func (c Cost) Clearly(n Cost) bool { return c.within(n, clear) }

func (c Cost) within(n Cost, factor float64) bool {
	return float64(c.CPU) <= factor*float64(max(n.CPU, floor)) && float64(c.Bytes) <= factor*float64(max(n.Bytes, bytesFloor))
}

// Compare fails the test if double, the cost of 2n, is more than Factor times that of n.
func Compare(t *testing.T, n int, cost, double Cost) {
	t.Helper()
	t.Logf("n=%d: %v and %d bytes; 2n: %v (%.1fx) and %d bytes (%.1fx)", n, cost.CPU, cost.Bytes,
		double.CPU, float64(double.CPU)/float64(max(cost.CPU, 1)), double.Bytes, float64(double.Bytes)/float64(max(cost.Bytes, 1)))
	if double.CPU > Factor*max(cost.CPU, floor) {
		t.Errorf("n=%d takes %v of CPU, and 2n takes %v: more than %d times as much", n, cost.CPU, double.CPU, Factor)
	}
	if double.Bytes > Factor*max(cost.Bytes, bytesFloor) {
		t.Errorf("n=%d takes %d bytes, and 2n takes %d: more than %d times as much", n, cost.Bytes, double.Bytes, Factor)
	}
}

// Measure runs work so many times and returns what all of that cost.
func Measure(run func(), times int) Cost {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := used()
	for range times {
		run()
	}
	cpu = used() - cpu
	runtime.ReadMemStats(&after)
	return Cost{CPU: cpu, Bytes: after.TotalAlloc - before.TotalAlloc}
}
