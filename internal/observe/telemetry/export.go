package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resourcepb "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// exporter sends spans by OTLP over HTTP, as protobuf. OpenTelemetry's own exporter would add gRPC
// to the binary; see docs/decisions/0015.
type exporter struct {
	endpoint   *url.URL
	headers    map[string]string
	client     *http.Client
	complaints *complaints
	ctx        context.Context //nolint:containedctx // cancelled when no more may be sent; it belongs to no batch
	cancel     context.CancelFunc
	ended      chan struct{} // closed when the last batch was sent
}

var _ sdktrace.SpanExporter = (*exporter)(nil)

func newExporter(endpoint *url.URL, to Tracing, complaints *complaints) *exporter {
	e := &exporter{endpoint: endpoint, headers: to.Headers, complaints: complaints, ended: make(chan struct{})}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	only := new(http.Protocols) // a batch at a time needs no HTTP/2, whose client can be made to wait for ever (docs/decisions/0003)
	only.SetHTTP1(true)
	e.client = &http.Client{
		Timeout: to.Timeout,
		Transport: &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			MaxIdleConns:        1,
			IdleConnTimeout:     time.Minute,
			TLSHandshakeTimeout: to.Timeout,
			Protocols:           only,
		},
		// The headers are only for this address.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return e
}

// ExportSpans sends a batch. If that fails, the batch is dropped and a log record says so: a queue
// of old spans would delay new ones.
func (e *exporter) ExportSpans(ctx context.Context, batch []sdktrace.ReadOnlySpan) error {
	if len(batch) > 0 {
		e.complaints.add(e.send(ctx, batch))
	}
	return nil // complaints has logged the error, less often than the SDK would
}

// Shutdown is called once, after the last batch.
func (e *exporter) Shutdown(context.Context) error {
	e.client.CloseIdleConnections()
	close(e.ended)
	return nil
}

// send sends a batch, and returns how many of its spans are lost if that fails.
func (e *exporter) send(ctx context.Context, batch []sdktrace.ReadOnlySpan) (lost int, err error) {
	defer func() { // the SDK's goroutine does not recover
		if p := recover(); p != nil {
			lost, err = len(batch), fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	body, err := proto.Marshal(requestOf(batch))
	if err != nil {
		return len(batch), fmt.Errorf("encode spans: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)() //nolint:contextcheck // the end of the exporter ends this, too
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint.String(), bytes.NewReader(body))
	if err != nil {
		return len(batch), errors.New("the endpoint cannot be asked") // err might quote it
	}
	for name, value := range e.headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "orla")
	resp, err := e.client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // its text has the endpoint, which may contain a key
		}
		return len(batch), fmt.Errorf("%s: %w", e.endpoint.Host, err)
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	const enough = 64 << 10
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, enough)) // the status is enough
	if resp.StatusCode/100 != 2 {
		return len(batch), fmt.Errorf("%s answered %s", e.endpoint.Host, resp.Status)
	}
	var said collectorpb.ExportTraceServiceResponse
	if proto.Unmarshal(answer, &said) == nil && said.GetPartialSuccess().GetRejectedSpans() > 0 {
		return int(said.GetPartialSuccess().GetRejectedSpans()), fmt.Errorf("%s does not take all spans", e.endpoint.Host)
	}
	return 0, nil
}

// requestOf returns a batch as an OTLP request. All spans of a batch have the same resource and
// scope.
func requestOf(batch []sdktrace.ReadOnlySpan) *collectorpb.ExportTraceServiceRequest {
	all := make([]*tracepb.Span, len(batch))
	for i, s := range batch {
		all[i] = spanOf(s)
	}
	from := batch[0]
	return &collectorpb.ExportTraceServiceRequest{ResourceSpans: []*tracepb.ResourceSpans{{
		Resource:  &resourcepb.Resource{Attributes: attributesOf(from.Resource().Attributes())},
		SchemaUrl: from.Resource().SchemaURL(),
		ScopeSpans: []*tracepb.ScopeSpans{{
			Scope: &commonpb.InstrumentationScope{Name: from.InstrumentationScope().Name, Version: from.InstrumentationScope().Version},
			Spans: all,
		}},
	}}}
}

func spanOf(s sdktrace.ReadOnlySpan) *tracepb.Span {
	at := s.SpanContext()
	trace, id := at.TraceID(), at.SpanID()
	out := &tracepb.Span{
		TraceId:                trace[:],
		SpanId:                 id[:],
		TraceState:             at.TraceState().String(),
		Flags:                  flagsOf(at, s.Parent()),
		Name:                   s.Name(),
		Kind:                   tracepb.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano:      nanos(s.StartTime()),
		EndTimeUnixNano:        nanos(s.EndTime()),
		Attributes:             attributesOf(s.Attributes()),
		DroppedAttributesCount: uint32(min(max(s.DroppedAttributes(), 0), math.MaxUint32)),
		Status:                 &tracepb.Status{Message: s.Status().Description},
	}
	switch s.SpanKind() {
	case oteltrace.SpanKindServer:
		out.Kind = tracepb.Span_SPAN_KIND_SERVER
	case oteltrace.SpanKindClient:
		out.Kind = tracepb.Span_SPAN_KIND_CLIENT
	default: // Orla makes no other kinds
	}
	if s.Status().Code == otelcodes.Error {
		out.Status.Code = tracepb.Status_STATUS_CODE_ERROR
	}
	if s.Parent().HasSpanID() {
		parent := s.Parent().SpanID()
		out.ParentSpanId = parent[:]
	}
	return out
}

// flagsOf returns the W3C flags, and whether the parent is in another program.
func flagsOf(at, parent oteltrace.SpanContext) uint32 {
	flags := uint32(at.TraceFlags()) | uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK)
	if parent.IsRemote() {
		flags |= uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	}
	return flags
}

func nanos(t time.Time) uint64 { return uint64(max(t.UnixNano(), 0)) }

// attributesOf converts attributes to OTLP. Those that are not strings come from
// OTEL_RESOURCE_ATTRIBUTES or the SDK, and become strings.
func attributesOf(list []attribute.KeyValue) []*commonpb.KeyValue {
	out := make([]*commonpb.KeyValue, len(list))
	for i, a := range list {
		out[i] = &commonpb.KeyValue{
			Key:   string(a.Key),
			Value: &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: a.Value.String()}},
		}
	}
	return out
}
