package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// tools are the tools that there are.
type tools struct {
	mu    sync.Mutex // guards names
	names []string
}

func (t *tools) set(names ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.names = names
}

func (t *tools) list() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.names
}

func newTelemetry(change ...func(*telemetry.Options)) (*telemetry.Telemetry, *tools) {
	there := &tools{}
	there.set("a", "b")
	opts := telemetry.Options{Tools: there.list, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&opts)
	}
	return telemetry.New(opts), there
}

// observe has a call begin and end.
func observe(t *telemetry.Telemetry, tool string, listed bool, end mcpbridge.CallEnd) {
	_, ended := t.Observe(context.Background(), mcpbridge.CallStart{Tool: tool, Listed: listed, Args: []byte(`{"x":1234}`)})
	ended(end)
}

// scrape returns the metrics as text.
func scrape(t testing.TB, from *telemetry.Telemetry) string {
	t.Helper()
	w := httptest.NewRecorder()
	from.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// holds checks that a scrape has all of the lines.
func holds(t testing.TB, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains("\n"+text, "\n"+line+"\n") {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("there is no line %q; there are:\n%s", line, grep(text, strings.Fields(name)[0]))
		}
	}
}

func grep(text, part string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			out.WriteString(line)
		}
	}
	return out.String()
}

func TestCallsAreCounted(t *testing.T) {
	tel, _ := newTelemetry()
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true, ResponseBytes: 7, Took: 2 * time.Millisecond})
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true, ResponseBytes: 7, Attempts: 3, Took: 400 * time.Second})
	observe(tel, "a", true, mcpbridge.CallEnd{Code: "timeout", Attempts: 2, Took: time.Millisecond})
	_, ended := tel.Observe(t.Context(), mcpbridge.CallStart{Tool: "b", Listed: true})
	text := scrape(t, tel)
	holds(t, text,
		`orla_calls_total{code="ok",tool="a"} 2`,
		`orla_calls_total{code="timeout",tool="a"} 1`,
		`orla_calls_total{code="ok",tool="b"} 0`,
		`orla_call_retries_total{tool="a"} 3`,
		`orla_call_retries_total{tool="b"} 0`,
		`orla_calls_in_flight 1`,
		`orla_request_bytes_total{tool="a"} 30`,
		`orla_response_bytes_total{tool="a"} 14`,
		`orla_call_duration_seconds_bucket{tool="a",le="0.001"} 1`,
		`orla_call_duration_seconds_bucket{tool="a",le="0.0025"} 2`,
		`orla_call_duration_seconds_bucket{tool="a",le="300"} 2`,
		`orla_call_duration_seconds_bucket{tool="a",le="+Inf"} 3`,
		`orla_call_duration_seconds_sum{tool="a"} 400.003`,
		`orla_call_duration_seconds_count{tool="a"} 3`,
		`orla_tools 2`,
	)
	ended(mcpbridge.CallEnd{OK: true})
	holds(t, scrape(t, tel), `orla_calls_in_flight 0`, `orla_calls_total{code="ok",tool="b"} 1`)
}

// Nothing that a client or a tool makes up becomes a series of its own.
func TestNoLabelIsMadeUp(t *testing.T) {
	tel, _ := newTelemetry()
	for i := range 1000 {
		observe(tel, fmt.Sprint("made-up-", i), false, mcpbridge.CallEnd{Code: "unsupported_tool"})
		observe(tel, "a", true, mcpbridge.CallEnd{Code: fmt.Sprint("code-", i)})
	}
	observe(tel, "a", true, mcpbridge.CallEnd{Code: "ok"}) // a tool's own word, of a failure
	text := scrape(t, tel)
	holds(t, text, `orla_calls_total{code="unsupported_tool",tool="(unknown)"} 1000`, `orla_calls_total{code="other",tool="a"} 1001`)
	if n := strings.Count(text, "\norla_calls_total{"); n != 4 {
		t.Errorf("%d series:\n%s", n, grep(text, "orla_calls_total"))
	}
}

// Tools that come and go leave nothing, whether or not anybody scrapes.
func TestAToolTakesItsSeriesAlong(t *testing.T) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	tel, there := newTelemetry()
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	before := heap()
	for i := range 10_000 {
		name := fmt.Sprint("tool-", i)
		there.set("a", name)
		observe(tel, name, true, mcpbridge.CallEnd{OK: true})
	}
	if grown := heap() - before; grown > 256<<10 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	_, ended := tel.Observe(t.Context(), mcpbridge.CallStart{Tool: "tool-9999", Listed: true})
	there.set("a")
	text := scrape(t, tel)
	ended(mcpbridge.CallEnd{OK: true}) // in flight when its tool went
	if text += scrape(t, tel); strings.Contains(text, "tool-") {
		t.Errorf("series of tools that have gone:\n%s", grep(text, "tool-"))
	}
	holds(t, text, `orla_calls_total{code="ok",tool="a"} 1`, `orla_calls_in_flight 0`)
	if l := tel.Latencies("tool-9999"); l != (telemetry.Latency{}) {
		t.Errorf("a tool that has gone has %+v", l)
	}
}

// A tool that comes while series are looked through keeps what is counted of it.
func TestAToolThatComesDuringAScrape(t *testing.T) {
	var tel *telemetry.Telemetry
	call := sync.OnceFunc(func() { observe(tel, "new", true, mcpbridge.CallEnd{OK: true}) })
	tel, there := newTelemetry(func(o *telemetry.Options) {
		list := o.Tools
		o.Tools = func() []string {
			old := list()
			call() // the tool came when the list had been taken
			return old
		}
	})
	scrape(t, tel)
	there.set("a", "b", "new")
	holds(t, scrape(t, tel), `orla_calls_total{code="ok",tool="new"} 1`)
	if l := tel.Latencies("new"); l.Calls != 1 {
		t.Errorf("%d calls were counted; want 1", l.Calls)
	}
}

func TestLatencies(t *testing.T) {
	tel, _ := newTelemetry()
	if l := tel.Latencies("a", "b"); l != (telemetry.Latency{}) {
		t.Errorf("nothing gave %+v", l)
	}
	for i := range 1000 { // of which the last 256 count: 745 to 1000 ms
		observe(tel, "a", true, mcpbridge.CallEnd{OK: i%10 != 0, Code: "crashed", Took: time.Duration(i+1) * time.Millisecond})
	}
	if l, want := tel.Latencies("a"), (telemetry.Latency{Calls: 1000, Errors: 100, P50: 872 * time.Millisecond, P99: 998 * time.Millisecond}); l != want {
		t.Errorf("got %+v, want %+v", l, want)
	}
	observe(tel, "b", true, mcpbridge.CallEnd{OK: true, Took: 3 * time.Hour}) // over what an entry holds
	if l := tel.Latencies("b"); l.P50 != l.P99 || l.P50 < time.Hour {
		t.Errorf("one long call gave %+v", l)
	}
	if l := tel.Latencies("a", "b"); l.Calls != 1001 || l.Errors != 100 || l.P99 != 999*time.Millisecond {
		t.Errorf("both gave %+v", l)
	}
}

// What is, is read when somebody asks.
func TestWhatIsReadAtTheScrape(t *testing.T) {
	life := peer.Life{State: "READY", Started: time.Now().Add(-time.Hour), Restarts: 3, Waiting: 2}
	tel, _ := newTelemetry(func(o *telemetry.Options) {
		o.Lives = func() map[string]peer.Life { return map[string]peer.Life{"cap": life} }
		o.Usage = func() map[string]telemetry.Usage {
			return map[string]telemetry.Usage{"cap": {Memory: 1 << 20, CPU: 1500 * time.Millisecond, Processes: 2}}
		}
		o.Sessions = func() int { return 5 }
		o.Queued = func() int { return 6 }
		o.Dropped = func() int64 { return 7 }
	})
	tel.Reloaded(telemetry.Applied)
	text := scrape(t, tel)
	holds(t, text,
		`orla_capsule_state{state="READY",tool="cap"} 1`, `orla_capsule_state{state="CRASHED",tool="cap"} 0`,
		`orla_capsule_restarts_total{tool="cap"} 3`, `orla_capsule_failures{tool="cap"} 0`, `orla_calls_waiting{tool="cap"} 2`,
		`orla_capsule_memory_bytes{tool="cap"} 1.048576e+06`, `orla_capsule_cpu_seconds_total{tool="cap"} 1.5`, `orla_processes 2`,
		`orla_sessions 5`, `orla_calls_queued 6`, `orla_log_dropped_lines_total 7`,
		`orla_reloads_total{result="applied"} 1`, `orla_reloads_total{result="refused"} 0`,
	)
	line := grep(text, "orla_capsule_uptime_seconds{")
	up, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
	if err != nil || up < 3600 || up > time.Since(life.Started).Seconds() {
		t.Errorf("uptime: %s, %v", line, err)
	}
	life = peer.Life{State: "CRASHED", Held: true, Failures: 4}
	holds(t, scrape(t, tel), `orla_capsule_state{state="READY",tool="cap"} 0`, `orla_capsule_state{state="CRASHED",tool="cap"} 1`,
		`orla_capsule_uptime_seconds{tool="cap"} 0`, `orla_capsule_failures{tool="cap"} 4`, `orla_capsule_held{tool="cap"} 1`)
	for _, other := range []string{"go_goroutines", "orla_build_info{"} {
		if !strings.Contains(text, "\n"+other) {
			t.Errorf("there is no %s", other)
		}
	}
}

// The names are what Prometheus's own tool finds in order.
func TestPromtoolLikesTheMetrics(t *testing.T) {
	needs.Programs(t, "promtool")
	tel, _ := newTelemetry(func(o *telemetry.Options) {
		o.Lives = func() map[string]peer.Life { return map[string]peer.Life{"cap": {State: "READY", Since: time.Now()}} }
		o.Usage = func() map[string]telemetry.Usage { return map[string]telemetry.Usage{"cap": {}} }
		o.Sessions = func() int { return 5 }
		o.Queued = func() int { return 6 }
		o.Dropped = func() int64 { return 7 }
	})
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(scrape(t, tel))
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}

// Calls, scrapes and reloads may come at once.
func TestAllAtOnce(t *testing.T) {
	tel, there := newTelemetry()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 200 {
				name := fmt.Sprint("tool-", (i+j)%50)
				there.set("a", name)
				observe(tel, name, true, mcpbridge.CallEnd{OK: true, Took: time.Duration(j)})
				tel.Latencies(name)
			}
		})
		wg.Go(func() {
			for range 20 {
				w := httptest.NewRecorder()
				tel.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
				_, _ = io.Copy(io.Discard, w.Body)
				tel.Reloaded(telemetry.Refused)
			}
		})
	}
	wg.Wait()
	holds(t, scrape(t, tel), `orla_reloads_total{result="refused"} 160`, `orla_calls_in_flight 0`)
}

func BenchmarkObserve(b *testing.B) {
	tel, _ := newTelemetry()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, ended := tel.Observe(ctx, mcpbridge.CallStart{Tool: "a", Listed: true, Args: []byte(`{"x":1234}`)})
		ended(mcpbridge.CallEnd{OK: true, Took: time.Millisecond})
	}
}

func BenchmarkScrape(b *testing.B) {
	tel, there := newTelemetry()
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("tool-", i))
	}
	there.set(names...)
	for _, name := range names {
		observe(tel, name, true, mcpbridge.CallEnd{OK: true})
	}
	for b.Loop() {
		scrape(b, tel)
	}
}
