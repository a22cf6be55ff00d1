package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// All metrics. docs/METRICS.md says what each one means to an operator.
var (
	callsTotal    = prometheus.NewDesc("orla_calls_total", "Calls that have ended, by how: ok, or the code of the error.", []string{"tool", "code"}, nil)
	callRetries   = prometheus.NewDesc("orla_call_retries_total", "Attempts that calls took after their first.", []string{"tool"}, nil)
	callDuration  = prometheus.NewDesc("orla_call_duration_seconds", "How long calls took, waiting included.", []string{"tool"}, nil)
	callsInFlight = prometheus.NewDesc("orla_calls_in_flight", "Calls that have begun and not ended.", nil, nil)
	requestBytes  = prometheus.NewDesc("orla_request_bytes_total", "Bytes of the arguments of calls.", []string{"tool"}, nil)
	responseBytes = prometheus.NewDesc("orla_response_bytes_total", "Bytes of the answers to calls.", []string{"tool"}, nil)

	tools       = prometheus.NewDesc("orla_tools", "Tools that can be called.", nil, nil)
	sessions    = prometheus.NewDesc("orla_sessions", "Client sessions and event streams that are open.", nil, nil)
	processes   = prometheus.NewDesc("orla_processes", "Processes of capsules, those that they started included.", nil, nil)
	logDropped  = prometheus.NewDesc("orla_log_dropped_lines_total", "Lines of the log that were dropped because nobody read them.", nil, nil)
	callsQueued = prometheus.NewDesc("orla_calls_queued", "Calls of simple tools that wait for one of max_concurrent_calls places.", nil, nil)

	reloadsTotal = prometheus.NewDesc("orla_reloads_total", "Reloads of the configuration or of the tools folders, by their result.", []string{"result"}, nil)

	approvalsTotal   = prometheus.NewDesc("orla_approvals_total", "Records of calls that needed an approval and do not wait any more, by their result.", []string{"result"}, nil)
	approvalWait     = prometheus.NewDesc("orla_approval_wait_seconds", "How long it took until somebody approved or denied a call.", nil, nil)
	approvalsWaiting = prometheus.NewDesc("orla_approvals_waiting", "Calls that wait for a person's decision; the same call made again counts once.", nil, nil)

	callsWaiting    = prometheus.NewDesc("orla_calls_waiting", "Calls that wait for a capsule to be ready.", []string{"tool"}, nil)
	capsuleState    = prometheus.NewDesc("orla_capsule_state", "1 for the state that a capsule is in, 0 for the others.", []string{"tool", "state"}, nil)
	capsuleRestarts = prometheus.NewDesc("orla_capsule_restarts_total", "Starts of a capsule's process after the first one.", []string{"tool"}, nil)
	capsuleFailures = prometheus.NewDesc("orla_capsule_failures", "Failures of a capsule in a row; 0 after it has been ready for long enough.", []string{"tool"}, nil)
	capsuleHeld     = prometheus.NewDesc("orla_capsule_held", "1 for a capsule that was stopped by an operator, and stays so.", []string{"tool"}, nil)
	capsuleUptime   = prometheus.NewDesc("orla_capsule_uptime_seconds", "For how long a capsule's process has been running; 0 while there is none.", []string{"tool"}, nil)
	capsuleMemory   = prometheus.NewDesc("orla_capsule_memory_bytes", "Memory that a capsule's processes take.", []string{"tool"}, nil)
	capsuleCPU      = prometheus.NewDesc("orla_capsule_cpu_seconds_total", "CPU time that a capsule's processes have taken; starts again at 0 with each process.", []string{"tool"}, nil)
)

// states are the values of peer.Life.State.
var states = [...]string{"CREATED", "STARTING", "READY", "RELOADING", "CRASHED", "STOPPING", "STOPPED"}

// collector reads everything at a scrape.
type collector struct{ of *Telemetry }

// Describe describes nothing: which metrics exist depends on Options.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	t := c.of
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	gauge(callsInFlight, float64(t.inFlight.Load()))
	for tool, s := range t.calls.known() {
		n := s.counted()
		for code, ended := range n.ended {
			if ended > 0 || code == ok {
				counter(callsTotal, float64(ended), tool, t.calls.codes.names[code])
			}
		}
		counter(callRetries, float64(n.retries), tool)
		counter(requestBytes, float64(n.request), tool)
		counter(responseBytes, float64(n.response), tool)
		out <- histogramOf(callDuration, buckets[:], n.buckets[:], n.took, tool)
	}
	for result, n := range t.reloads.counts() {
		counter(reloadsTotal, float64(n), result)
	}
	for result, n := range t.ended.counts() {
		counter(approvalsTotal, float64(n), result)
	}
	waited, sum := t.waits()
	out <- histogramOf(approvalWait, waitBounds[:], waited[:], sum)
	gauge(tools, float64(len(t.opts.Tools())))
	if t.opts.Sessions != nil {
		gauge(sessions, float64(t.opts.Sessions()))
	}
	if t.opts.Queued != nil {
		gauge(callsQueued, float64(t.opts.Queued()))
	}
	if t.opts.Waiting != nil {
		gauge(approvalsWaiting, float64(t.opts.Waiting()))
	}
	if t.opts.Dropped != nil {
		counter(logDropped, float64(t.dropped.Load()+t.opts.Dropped()))
	}
	if t.opts.Lives != nil {
		for name, life := range t.opts.Lives() {
			collectLife(name, life, gauge, counter)
		}
	}
	if t.opts.Usage != nil {
		running := 0
		for name, u := range t.opts.Usage() {
			running += u.Processes
			gauge(capsuleMemory, float64(u.Memory), name)
			counter(capsuleCPU, u.CPU.Seconds(), name)
		}
		gauge(processes, float64(running))
	}
}

// emit writes one value of a metric.
type emit func(d *prometheus.Desc, v float64, labels ...string)

func collectLife(name string, life peer.Life, gauge, counter emit) {
	for _, state := range states {
		is := 0.0
		if life.State == state {
			is = 1
		}
		gauge(capsuleState, is, name, state)
	}
	up, held := 0.0, 0.0
	if !life.Started.IsZero() {
		up = time.Since(life.Started).Seconds()
	}
	if life.Held {
		held = 1
	}
	gauge(capsuleUptime, up, name)
	gauge(capsuleHeld, held, name)
	gauge(capsuleFailures, float64(life.Failures), name)
	gauge(callsWaiting, float64(life.Waiting), name)
	counter(capsuleRestarts, float64(life.Restarts), name)
}

// histogramOf returns durations as Prometheus needs them: each bucket includes the smaller ones. counts has one more than
// bounds, for the rest.
func histogramOf(d *prometheus.Desc, bounds []float64, counts []uint64, sum time.Duration, labels ...string) prometheus.Metric {
	upTo := make(map[float64]uint64, len(bounds))
	var all uint64
	for i, bound := range bounds {
		all += counts[i]
		upTo[bound] = all
	}
	all += counts[len(bounds)]
	return prometheus.MustNewConstHistogram(d, all, sum.Seconds(), upTo, labels...)
}
