// Package telemetry reports to machines how Orla is doing: metrics for Prometheus, spans for
// OpenTelemetry, and the latencies in orla status. It is the only implementation of
// mcpbridge.Options.Observe.
//
// Events are counted; states, such as a capsule's, are read at the moment of a scrape. Nothing here
// makes decisions, and no client can choose the name of a series.
//
// Its invariant: a call never waits for a scrape or an export, and memory is bounded by the number
// of tools.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/mcpbridge"
)

// Usage is the current usage of one capsule's processes.
type Usage struct {
	Memory    int64         // resident bytes
	CPU       time.Duration // of the running process and those below it
	Processes int
}

// Options has the functions that a Telemetry reads at a scrape. If one is nil, its metrics are left
// out. They may be called from several goroutines at once.
type Options struct {
	// Tools returns the tools that clients can call now. Required: the counts of other tools are
	// removed.
	Tools func() []string
	// Lives returns the state of each capsule, by name.
	Lives func() map[string]peer.Life
	// Usage returns the usage of each capsule, by name.
	Usage func() map[string]Usage
	// Own returns the memory of Orla itself, in bytes.
	Own func() int64
	// Sessions returns the number of open sessions.
	Sessions func() int
	// Queued returns the number of calls of simple tools that wait for a place to run.
	Queued func() int
	// Waiting returns the number of calls' records that wait for a person's decision.
	Waiting func() int
	// Dropped returns the number of log lines that were dropped.
	Dropped func() int64
	// Log is required.
	Log *slog.Logger
}

// Telemetry observes calls, and reports about them. Its methods may be called from any goroutine.
type Telemetry struct {
	opts     Options
	registry *prometheus.Registry
	calls    *calls
	inFlight atomic.Int64
	numbers  numbers
	reloads  results
	approvals
	dropped atomic.Int64          // lines of the log, in the programs before
	spans   atomic.Pointer[spans] // nil without tracing
}

// New returns a Telemetry without any calls.
func New(opts Options) *Telemetry {
	t := &Telemetry{
		opts:      opts,
		registry:  prometheus.NewRegistry(),
		calls:     newCalls(opts.Tools),
		approvals: newApprovals(),
		numbers:   numbers{usage: opts.Usage, own: opts.Own, log: opts.Log, memory: map[string][]keptMemory{}},
		reloads:   newResults(Applied, Refused),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "orla_build_info", Help: "Which Orla this is; always 1.",
		ConstLabels: prometheus.Labels{"version": version.Version(), "goversion": runtime.Version()},
	})
	build.Set(1)
	t.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, collector{t},
	)
	return t
}

// Result is how a reload ended.
type Result string

// The results of a reload.
const (
	Applied Result = "applied" // the changes are in effect
	Refused Result = "refused" // there were errors; the previous configuration is kept
)

// Reloaded counts a reload.
func (t *Telemetry) Reloaded(result Result) { t.reloads.add(string(result), 1) }

// results counts by a result. All results are there from the start, so that a series shows its first increase.
type results map[string]*atomic.Uint64

func newResults[R ~string](of ...R) results {
	r := results{}
	for _, result := range of {
		r[string(result)] = &atomic.Uint64{}
	}
	return r
}

// add counts n of a result, if that exists.
func (r results) add(result string, n uint64) {
	if of := r[result]; of != nil {
		of.Add(n)
	}
}

// counts returns how often there was each result.
func (r results) counts() map[string]uint64 {
	counts := make(map[string]uint64, len(r))
	for result, of := range r {
		counts[result] = of.Load()
	}
	return counts
}

// Handler serves the metrics in the formats of Prometheus and OpenMetrics. It does no
// authentication; its caller must.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorLog:            scrapeLog{t.opts.Log},
		ErrorHandling:       promhttp.ContinueOnError, // an error in one part must not hide the rest
		MaxRequestsInFlight: maxScrapes,
	})
}

// scrapeLog logs what goes wrong in a scrape, except that its client has left or reads too slowly.
// promhttp says that once for each family of metrics, so a client could fill the log.
type scrapeLog struct{ log *slog.Logger }

// Println implements promhttp.Logger.
func (l scrapeLog) Println(v ...any) {
	for _, part := range v {
		if err, ok := part.(error); ok && errors.As(err, new(net.Error)) {
			return
		}
	}
	l.log.Warn("a scrape of the metrics failed in part", "err", strings.TrimSpace(fmt.Sprintln(v...)))
}

// maxScrapes bounds concurrent scrapes, each of which walks over all series. The bridge has the same
// limit, and shares it among callers.
const maxScrapes = 8

// Observe implements mcpbridge.Options.Observe.
func (t *Telemetry) Observe(ctx context.Context, call mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
	s, size := t.calls.of(call.Tool, call.Listed), len(call.Args)
	t.inFlight.Add(1)
	var span oteltrace.Span // nil without tracing
	if to := t.spans.Load(); to != nil {
		ctx, span = to.begin(ctx, call)
	}
	return ctx, func(how mcpbridge.CallEnd) {
		t.inFlight.Add(-1)
		now, code := time.Now(), t.calls.codes.of(how)
		s.add(now, size, code, how)
		t.numbers.add(now, microsOf(how.Took), code != ok)
		if span != nil {
			end(span, how)
		}
	}
}

// Trace changes where spans are sent. It first sends the remaining spans to the old endpoint, within
// flushTime. Calls of Trace must not overlap.
func (t *Telemetry) Trace(ctx context.Context, to Tracing) error {
	var next *spans
	if to.Endpoint != "" {
		var err error
		if next, err = newSpans(ctx, to, t.opts.Log); err != nil {
			return err
		}
	}
	if old := t.spans.Swap(next); old != nil {
		old.close(ctx)
	}
	return nil
}

// Close sends the remaining spans, within flushTime, even if ctx has ended. Later calls have no
// spans.
func (t *Telemetry) Close(ctx context.Context) {
	t.numbers.close()
	if last := t.spans.Swap(nil); last != nil {
		last.close(ctx)
	}
}

// Latencies returns the quantiles of the recent calls of tools, taken together, and the number of
// all their calls.
func (t *Telemetry) Latencies(tools ...string) Latency { return t.calls.latencies(tools) }
