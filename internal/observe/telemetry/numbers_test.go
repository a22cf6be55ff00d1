package telemetry_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/mcpbridge"
)

// O2: the numbers of the last hour are those of the calls, and memory is measured only while something happens.
func TestO2NumbersOfTheLastHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		tel, _ := newTelemetry(func(o *telemetry.Options) {
			o.Usage = func() map[string]telemetry.Usage {
				looks.Add(1)
				return map[string]telemetry.Usage{"a": {Memory: 3 << 20}, "c": {Memory: 1 << 20}}
			}
			o.Own = func() int64 { return 20 << 20 }
		})
		for i := range 100 {
			observe(tel, "a", true, mcpbridge.CallEnd{OK: i%10 != 0, Code: "timeout", Took: time.Duration(i+1) * time.Millisecond})
		}
		time.Sleep(telemetry.SampleStep)
		observe(tel, "b", true, mcpbridge.CallEnd{OK: true, Took: 2 * time.Second})
		time.Sleep(telemetry.SampleStep)
		synctest.Wait()
		before := looks.Load()
		time.Sleep(30 * time.Minute)
		if looks.Load() != before || before != 2 {
			t.Errorf("memory was measured %d times for two steps with calls, and %d times then", before, looks.Load()-before)
		}
		samples, memory := tel.Numbers()
		if len(samples) != 3 {
			t.Fatalf("%d samples: %v", len(samples), samples)
		}
		s := samples[0]
		if s.Calls != 100 || s.Errors != 10 || s.Memory != 4<<20 || s.Own != 20<<20 {
			t.Errorf("the first sample: %+v", s)
		}
		if near := func(got, want time.Duration) bool { return got > want*8/10 && got < want*12/10 }; !near(s.P50, 50*time.Millisecond) || !near(s.P99, 99*time.Millisecond) || !near(samples[1].P50, 2*time.Second) {
			t.Errorf("quantiles: %v %v %v", s.P50, s.P99, samples[1].P50)
		}
		if samples[2].Calls != 0 || samples[2].Memory == 0 {
			t.Errorf("the look itself: %+v", samples[2])
		}
		if len(memory["a"]) != 2 || memory["c"][0].Memory != 1<<20 {
			t.Errorf("memory: %v", memory)
		}
		if got := tel.ToolNumbers("a", "b", "none"); len(got) != 1 || got[0].Calls != 101 || got[0].Errors != 10 || got[0].Longest != 2*time.Second {
			t.Errorf("the tools together: %+v", got)
		}
		time.Sleep(31 * time.Minute)
		if samples, _ := tel.Numbers(); len(samples) != 2 || len(tel.ToolNumbers("a")) != 0 {
			t.Errorf("after an hour: %v", samples)
		}
		tel.Close(context.Background())
	})
}

// O2, L4: an hour in which 100 capsules are called all the time takes about 230 KiB, 2 of them for each.
func TestO2NumbersTakeLittleMemory(t *testing.T) {
	var names []string
	usage := map[string]telemetry.Usage{}
	for i := range 100 {
		names = append(names, fmt.Sprint("tool-", i))
		usage[names[i]] = telemetry.Usage{Memory: 30 << 20}
	}
	synctest.Test(t, func(t *testing.T) {
		tel, there := newTelemetry(func(o *telemetry.Options) { o.Usage = func() map[string]telemetry.Usage { return usage } })
		there.set(names...)
		call := func() {
			for _, name := range names {
				observe(tel, name, true, mcpbridge.CallEnd{OK: true, Took: time.Millisecond})
			}
		}
		for range 300 { // fills what existed before
			call()
		}
		before := heap()
		for range 2 * 360 {
			time.Sleep(telemetry.SampleStep)
			call()
		}
		synctest.Wait()
		used := heap() - before
		t.Logf("%d bytes", used)
		if used > 384<<10 {
			t.Errorf("an hour of samples of %d tools takes %d bytes", len(names), used)
		}
		tel.Close(context.Background())
	})
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
