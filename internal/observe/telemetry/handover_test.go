package telemetry_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/mcpbridge"
)

// used is a Telemetry that has seen something of everything.
func used(change ...func(*telemetry.Options)) *telemetry.Telemetry {
	tel, _ := newTelemetry(append(change, func(o *telemetry.Options) {
		o.Dropped = func() int64 { return 3 }
		o.Usage = func() map[string]telemetry.Usage { return map[string]telemetry.Usage{"a": {Memory: 3 << 20}} }
		o.Own = func() int64 { return 20 << 20 }
	})...)
	for i := range 600 {
		observe(tel, "a", true, mcpbridge.CallEnd{OK: i%10 != 0, Code: "timeout", Took: time.Duration(i+1) * time.Millisecond, Attempts: 1 + i%2, ResponseBytes: 7})
	}
	observe(tel, "b", true, mcpbridge.CallEnd{OK: true, Took: 2 * time.Second})
	observe(tel, "made up", false, mcpbridge.CallEnd{Code: "unsupported_tool"})
	tel.Reloaded(telemetry.Applied)
	tel.Approval(telemetry.Denied, 70*time.Second)
	return tel
}

// counters are the metrics of what is counted.
func counters(tel *telemetry.Telemetry) string {
	w := httptest.NewRecorder()
	tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	ours := regexp.MustCompile(`(?m)^orla_(calls|call|request|response|reloads|approvals|approval|log)_.*$`)
	return strings.Join(ours.FindAllString(w.Body.String(), -1), "\n")
}

// SPEC Q1: no counter falls at an upgrade, and the last hour goes on, also over the next upgrade.
func TestQ1CountersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tel := used()
		time.Sleep(2 * telemetry.SampleStep)
		want, latencies := counters(tel), tel.Latencies("a", "b")
		samples, memory := tel.Numbers()
		minutes := tel.ToolNumbers("a", "b")
		for range 2 {
			given := tel.Give()
			tel.Close(t.Context())
			var there *tools
			tel, there = newTelemetry(func(o *telemetry.Options) { o.Dropped = func() int64 { return 0 } })
			there.set() // not known yet
			if err := tel.Take(given); err != nil {
				t.Fatal(err)
			}
			there.set("a", "b")
			if got := counters(tel); got != want {
				t.Errorf("the counters are\n%s\nthey were\n%s", got, want)
			}
			if got := tel.Latencies("a", "b"); got != latencies {
				t.Errorf("latencies: %+v; they were %+v", got, latencies)
			}
			if s, m := tel.Numbers(); !reflect.DeepEqual(s, samples) || !reflect.DeepEqual(m, memory) || !reflect.DeepEqual(tel.ToolNumbers("a", "b"), minutes) {
				t.Errorf("the last hour: %v, %v; it was %v, %v", s, m, samples, memory)
			}
		}
		observe(tel, "a", true, mcpbridge.CallEnd{OK: true, Took: time.Millisecond})
		if got := tel.Latencies("a").Calls; got != 601 {
			t.Errorf("with a new call there are %d", got)
		}
		tel.Close(t.Context())
	})
}

// SPEC Q1: tools beyond those that clients can call now do not make the counts of others forgotten.
func TestQ1CountersOfManyToolsGoOn(t *testing.T) {
	const many = 200
	names := make([]string, many)
	tel, there := newTelemetry()
	for i := range names {
		names[i] = fmt.Sprintf("tool%d", i)
	}
	there.set(names...)
	for _, name := range names {
		observe(tel, name, true, mcpbridge.CallEnd{OK: true})
	}
	there.set() // the capsules have been given away
	next, there := newTelemetry()
	there.set()
	if err := next.Take(tel.Give()); err != nil {
		t.Fatal(err)
	}
	there.set(names...)
	if got := next.Latencies(names...).Calls; got != many {
		t.Errorf("%d calls; want %d", got, many)
	}
}

// SPEC Q1, S2: what is given of recent calls is bounded; the counts are not left out.
func TestQ1GivenCountersAreBounded(t *testing.T) {
	const many, calls = 3000, 256
	names := make([]string, many)
	tel, there := newTelemetry()
	for i := range names {
		names[i] = fmt.Sprintf("tool%d", i)
	}
	there.set(names...)
	for _, name := range names {
		for range calls {
			observe(tel, name, true, mcpbridge.CallEnd{OK: true, Took: time.Hour})
		}
	}
	given := tel.Give()
	const most = 7 << 20
	if len(given) > most {
		t.Errorf("%d bytes are given; want at most %d", len(given), most)
	}
	next, there := newTelemetry()
	there.set(names...)
	if err := next.Take(given); err != nil {
		t.Fatal(err)
	}
	if got := next.Latencies(names...); got.Calls != many*calls || got.P50 == 0 {
		t.Errorf("%+v", got)
	}
}

// SPEC Q1: another version, or no state at all, is refused, and nothing of it is taken. What is senseless in one that is
// taken is left out.
func TestQ1CountersThatCannotBeTaken(t *testing.T) {
	for _, given := range []string{"", "[]", `{"version":2,"tools":{"a":{"ended":{"ok":5}}}}`, `{"tools":{"a":{"ended":{"ok":5}}}}`} {
		tel, _ := newTelemetry()
		if err := tel.Take([]byte(given)); err == nil || tel.Latencies("a").Calls != 0 {
			t.Errorf("%q: %v, %+v", given, err, tel.Latencies("a"))
		}
	}
	tel, _ := newTelemetry()
	odd := `{"version":1,"bounds":[1,2],"tools":{"a":{"ended":{"ok":5,"from_the_future":2},"buckets":[1],"last":[],"minutes":[[9,1,1,1,1],[3,1,1,1,1]]}},
		"reloads":{"unheard":1},"waits":{"bounds":[1],"counts":[]},"samples":[[4294967295,1,1,1,1,1,1]],"last":{"-1":5,"9999":5},"memory":{"a":[[4294967295,1]]}}`
	if err := tel.Take([]byte(odd)); err != nil {
		t.Fatal(err)
	}
	if got := counters(tel); !strings.Contains(got, `orla_calls_total{code="ok",tool="a"} 5`) || !strings.Contains(got, `orla_calls_total{code="other",tool="a"} 2`) {
		t.Errorf("the counters are\n%s", got)
	}
	if _, memory := tel.Numbers(); len(memory["a"]) != 0 || len(tel.ToolNumbers("a")) != 0 {
		t.Errorf("what has no sense is shown: %v, %v", memory, tel.ToolNumbers("a"))
	}
	tel.Close(t.Context())
}

var record = flag.Bool("record", false, "write the recorded state again")

// SPEC Q1: what a program has given in version 1 is read by this one, whole. The file stays as it is for as long as the
// version is read.
func TestQ1RecordedCountersAreRead(t *testing.T) {
	file := filepath.Join("testdata", "state-1.json")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(3 * time.Minute)
		if *record {
			tel := used()
			time.Sleep(telemetry.SampleStep)
			tel.Numbers()
			observe(tel, "a", true, mcpbridge.CallEnd{OK: true, Took: time.Millisecond})
			if err := os.WriteFile(file, tel.Give(), 0o644); err != nil {
				t.Fatal(err)
			}
			tel.Close(t.Context())
		}
	})
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(4 * time.Minute)
		tel, _ := newTelemetry()
		if err := tel.Take(recorded); err != nil {
			t.Fatal(err)
		}
		if again := tel.Give(); string(again) != string(recorded) {
			t.Errorf("what was read is given as\n%s\nit was\n%s", again, recorded)
		}
		tel.Close(t.Context())
	})
}
