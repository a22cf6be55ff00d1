package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/client"
)

// Tracing says where spans are sent. The SDK reads other settings from its environment variables:
// OTEL_TRACES_SAMPLER, OTEL_BSP_*, OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME.
type Tracing struct {
	// Endpoint is the complete URL that batches are POSTed to. If empty, there are no spans.
	Endpoint string
	// Headers are sent with each batch. They are secret.
	Headers map[string]string
	// Timeout bounds the sending of a batch. If zero, defaultSpanTimeout.
	Timeout time.Duration
	// Ratio is the share of traces beginning in Orla that are sampled, if Sampled is set; for other
	// traces the client decides. If Sampled is false, the SDK decides.
	Ratio   float64
	Sampled bool
}

// defaultSpanTimeout bounds the sending of a batch of spans.
const defaultSpanTimeout = 10 * time.Second

// flushTime is how long sending the remaining spans may take at the end.
const flushTime = 2 * time.Second

// spans makes spans of calls, and sends them.
type spans struct {
	provider *sdktrace.TracerProvider
	tracer   oteltrace.Tracer
	export   *exporter
}

// newSpans starts sending spans. It fails if the endpoint is not valid.
func newSpans(ctx context.Context, to Tracing, log *slog.Logger) (*spans, error) {
	endpoint, err := url.Parse(to.Endpoint)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https" {
		return nil, errors.New("the endpoint for traces is not an http or https address")
	}
	if to.Timeout <= 0 {
		to.Timeout = defaultSpanTimeout
	}
	complaints := &complaints{log: log}
	// The SDK has one error handler for the whole program. Without this one, it would write to stderr.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { complaints.add(0, err) }))
	from, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String(attrService, serviceName), attribute.String(attrServiceVersion, version.Version())),
		resource.WithFromEnv(), // later options override earlier ones
	)
	if err != nil {
		complaints.add(0, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err))
	}
	s := &spans{export: newExporter(endpoint, to, complaints)}
	options := []sdktrace.TracerProviderOption{
		sdktrace.WithBatcher(s.export), // its queue is bounded; spans that do not fit are dropped
		sdktrace.WithResource(from),
	}
	if to.Sampled {
		options = append(options, sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(to.Ratio))))
	}
	s.provider = sdktrace.NewTracerProvider(options...)
	s.tracer = s.provider.Tracer(scope, oteltrace.WithInstrumentationVersion(version.Version()))
	return s, nil
}

// close sends the remaining spans, within flushTime.
func (s *spans) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	_ = s.provider.Shutdown(ctx) // its errors were logged
	s.export.cancel()
	<-s.export.ended
}

// begin starts the span of a call, as a child of the client's span if there is one.
func (s *spans) begin(ctx context.Context, call mcpbridge.CallStart) (context.Context, oteltrace.Span) {
	if parent := call.Parent; !parent.IsZero() {
		ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{trace.ParentKey: parent.Parent(), trace.StateKey: parent.State()})
	}
	name := methodCall
	attributes := make([]attribute.KeyValue, 0, 9)
	add := func(key, value string) {
		if value != "" {
			attributes = append(attributes, attribute.String(key, value))
		}
	}
	add(attrMethod, methodCall)
	add(attrOperation, executeTool)
	if call.Listed { // there must be few different names
		name += " " + call.Tool
		add(attrTool, call.Tool)
	}
	add(attrVersion, call.Version)
	add(attrSession, call.Session)
	add(attrRequest, strings.Trim(string(call.Request), `"`))
	add(attrCall, call.ID)
	switch call.Transport {
	case client.Stdio:
		add(attrTransport, overPipe)
	case client.Control:
		add(attrTransport, overUnix)
		add(attrProtocol, protocolHTTP)
	case client.StreamableHTTP, client.LegacySSE:
		add(attrTransport, overTCP)
		add(attrProtocol, protocolHTTP)
	}
	ctx, span := s.tracer.Start(ctx, name, oteltrace.WithSpanKind(oteltrace.SpanKindServer), oteltrace.WithAttributes(attributes...))
	return trace.WithWork(ctx, contextOf(span), func(ctx context.Context) (context.Context, func()) { return s.work(ctx, name) }), span
}

// work starts the span of a provider's work for a call, after waiting.
func (s *spans) work(ctx context.Context, name string) (context.Context, func()) {
	ctx, span := s.tracer.Start(ctx, name, oteltrace.WithSpanKind(oteltrace.SpanKindClient))
	return trace.With(ctx, contextOf(span)), func() { span.End() }
}

// end ends the span of a call. A failed tool is a successful response in MCP: only the span says
// that it failed.
func end(span oteltrace.Span, how mcpbridge.CallEnd) {
	if how.Attempts > 1 {
		span.SetAttributes(attribute.Int(attrAttempts, how.Attempts))
	}
	if !how.OK {
		kind := how.Code
		if how.IsError {
			kind = toolError
		}
		span.SetAttributes(attribute.String(attrError, kind), attribute.String(attrCode, how.Code))
		if _, err := strconv.Atoi(how.Code); err == nil {
			span.SetAttributes(attribute.String(attrStatus, how.Code))
		}
		span.SetStatus(otelcodes.Error, how.Code) // not the reason: it may quote what a tool printed
	}
	span.End()
}

// contextOf returns the trace context of a span.
func contextOf(span oteltrace.Span) trace.Context {
	of := span.SpanContext()
	return trace.Of(of.TraceID(), of.SpanID(), byte(of.TraceFlags()), of.TraceState().String())
}

// complaints logs errors about spans, once a minute at most.
type complaints struct {
	log *slog.Logger

	mu   sync.Mutex // guards the fields that follow
	last time.Time  // when something was last logged
	lost int        // spans lost since then
}

const complaintEvery = time.Minute

// add reports lost spans and why, or an error without lost spans. It does nothing if err is nil.
func (c *complaints) add(lost int, err error) {
	if err == nil {
		return
	}
	c.mu.Lock()
	c.lost += lost
	now, all := time.Now(), c.lost
	due := c.last.IsZero() || now.Sub(c.last) >= complaintEvery
	if due {
		c.last, c.lost = now, 0
	}
	c.mu.Unlock()
	if due {
		c.log.Warn("traces cannot be sent", "err", err, "spans_lost", all)
	}
}
