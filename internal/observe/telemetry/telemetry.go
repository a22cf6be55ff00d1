// Package telemetry tells machines how Orla is doing: numbers for Prometheus,
// spans for OpenTelemetry, and the latencies that orla status shows. It is the
// only implementation of mcpbridge.Options.Observe.
//
// What happens is counted; what is, such as a capsule's state, is read at the
// moment somebody asks. Nothing here decides anything, and nothing a client
// writes becomes the name of a series.
//
// Its invariant: a call never waits for whoever looks at it, and memory is
// bounded by the tools that there are.
package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
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

// Usage is what the processes of one capsule take now.
type Usage struct {
	Memory    int64         // bytes that are resident
	CPU       time.Duration // of the process that runs and those below it
	Processes int
}

// Options is what a Telemetry reads, at the moment it is asked. A function that
// is nil leaves its metrics out. They may be called from several goroutines at
// once.
type Options struct {
	// Tools names the tools that clients can call now. Required: what is counted
	// of others is forgotten.
	Tools func() []string
	// Lives tells of each capsule, by its name.
	Lives func() map[string]peer.Life
	// Usage tells what each capsule takes, by its name.
	Usage func() map[string]Usage
	// Sessions is the number of open sessions.
	Sessions func() int
	// Queued is the number of calls of simple tools that wait for a place to run.
	Queued func() int
	// Dropped is the number of log lines that nobody read.
	Dropped func() int64
	// Log is required.
	Log *slog.Logger
}

// Telemetry observes calls and answers questions about them. Its methods may be
// called from any goroutine.
type Telemetry struct {
	opts     Options
	registry *prometheus.Registry
	calls    *calls
	inFlight atomic.Int64
	reloads  *prometheus.CounterVec
	spans    atomic.Pointer[spans] // nil without tracing
}

// New returns a Telemetry that has observed nothing yet.
func New(opts Options) *Telemetry {
	t := &Telemetry{
		opts:     opts,
		registry: prometheus.NewRegistry(),
		calls:    newCalls(opts.Tools),
		reloads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orla_reloads_total", Help: "Reloads of the configuration or of the tools folders, by their result.",
		}, []string{"result"}),
	}
	for _, result := range []Result{Applied, Refused} {
		t.reloads.WithLabelValues(string(result)) // a series that is there from the start shows its first increase
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "orla_build_info", Help: "Which Orla this is; always 1.",
		ConstLabels: prometheus.Labels{"version": version.Version(), "goversion": runtime.Version()},
	})
	build.Set(1)
	t.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		build, t.reloads, collector{t},
	)
	return t
}

// Result is how a reload ended.
type Result string

// The results of a reload.
const (
	Applied Result = "applied" // what differed is in force
	Refused Result = "refused" // there were faults; the old configuration stays
)

// Reloaded counts a reload.
func (t *Telemetry) Reloaded(result Result) { t.reloads.WithLabelValues(string(result)).Inc() }

// Handler serves the metrics in the formats of Prometheus and OpenMetrics. It
// asks for no password: whoever mounts it does.
func (t *Telemetry) Handler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(t.opts.Log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError, // a part that is wrong must not hide the rest
		MaxRequestsInFlight: maxScrapes,
	})
}

// maxScrapes bounds the scrapes at one time: each walks over all series. The bridge lets
// as many through, and shares them out by caller.
const maxScrapes = 8

// Observe is mcpbridge.Options.Observe.
func (t *Telemetry) Observe(ctx context.Context, call mcpbridge.CallStart) (context.Context, func(mcpbridge.CallEnd)) {
	s, size := t.calls.of(call.Tool, call.Listed), call.RequestBytes
	t.inFlight.Add(1)
	var span oteltrace.Span // nil without tracing
	if to := t.spans.Load(); to != nil {
		ctx, span = to.begin(ctx, call)
	}
	return ctx, func(how mcpbridge.CallEnd) {
		t.inFlight.Add(-1)
		s.add(size, t.calls.codes.of(how), how)
		if span != nil {
			end(span, how)
		}
	}
}

// Trace makes spans go where it is said from now on. What was to go elsewhere is
// sent first, for as long as that may take at the end. It must not be called
// twice at once.
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

// Close sends the spans that are left, for a while at most, also when ctx has
// ended. Calls that end later have none.
func (t *Telemetry) Close(ctx context.Context) {
	if last := t.spans.Swap(nil); last != nil {
		last.close(ctx)
	}
}

// Latencies tells of the last calls of tools, taken together, and of all their
// calls since the tools are there.
func (t *Telemetry) Latencies(tools ...string) Latency { return t.calls.latencies(tools) }
