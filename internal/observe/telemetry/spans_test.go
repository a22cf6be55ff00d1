package telemetry_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/slim/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/client"
)

// collector takes spans as an OpenTelemetry collector does.
type collector struct {
	*httptest.Server

	mu       sync.Mutex // guards the fields that follow
	spans    map[string]*tracepb.Span
	resource map[string]string
	headers  http.Header
	batches  int
}

func newCollector(t testing.TB, answer func(http.ResponseWriter, *http.Request)) *collector {
	t.Helper()
	c := &collector{spans: map[string]*tracepb.Span{}, resource: map[string]string{}}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var batch collectorpb.ExportTraceServiceRequest
		if err = errors.Join(err, proto.Unmarshal(body, &batch)); err != nil {
			t.Errorf("a batch cannot be read: %v", err)
		}
		c.take(&batch, r.Header)
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) take(batch *collectorpb.ExportTraceServiceRequest, headers http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.batches++
	c.headers = headers
	for _, from := range batch.ResourceSpans {
		for _, a := range from.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, of := range from.ScopeSpans {
			for _, s := range of.Spans {
				c.spans[hex.EncodeToString(s.SpanId)] = s
			}
		}
	}
}

// named returns the spans of a name, in the order of their beginnings.
func (c *collector) named(name string, kind tracepb.Span_SpanKind) []*tracepb.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.SortedFunc(maps.Values(c.spans), func(a, b *tracepb.Span) int { return int(int64(a.StartTimeUnixNano) - int64(b.StartTimeUnixNano)) })
	return slices.DeleteFunc(all, func(s *tracepb.Span) bool { return s.Name != name || s.Kind != kind })
}

func attributes(s *tracepb.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

// tracing returns a Telemetry that sends spans, and its log.
func tracing(t testing.TB, to telemetry.Tracing) (*telemetry.Telemetry, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	var mu sync.Mutex
	tel, _ := newTelemetry(func(o *telemetry.Options) {
		o.Log = slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return log.Write(p)
		}), nil))
	})
	if err := tel.Trace(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tel.Close(context.Background()) })
	return tel, log
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

const (
	clients = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	dropped = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func parent(t testing.TB, traceparent string) trace.Context {
	t.Helper()
	c, ok := trace.Parse(traceparent, "a=b")
	if !ok {
		t.Fatal(traceparent)
	}
	return c
}

// One span for each call, named and described as OpenTelemetry's conventions
// for MCP have it, below the client's, and one below it for the provider's work.
func TestSpansOfCalls(t *testing.T) {
	c := newCollector(t, nil)
	tel, log := tracing(t, telemetry.Tracing{Endpoint: c.URL + "/v1/traces", Headers: map[string]string{"Api-Key": "s3cret"}})

	ctx, ended := tel.Observe(t.Context(), mcpbridge.CallStart{
		Tool: "a", Listed: true, ID: "CALL", Session: "abcdefgh", Transport: client.StreamableHTTP, Version: "2025-11-25", Request: []byte(`"seven"`), Parent: parent(t, clients),
	})
	above := trace.From(ctx)
	working, over := trace.Begin(ctx)
	below := trace.From(working)
	over()
	ended(mcpbridge.CallEnd{OK: true})
	for what, place := range map[string]trace.Context{"the call": above, "its work": below} {
		if place.TraceID() != clients[3:35] || place.Parent() == clients || !strings.HasSuffix(place.Parent(), "-01") || place.State() != "a=b" {
			t.Errorf("%s is at %q %q", what, place.Parent(), place.State())
		}
	}
	for _, end := range []mcpbridge.CallEnd{{Code: "timeout", IsError: true}, {Code: "-32042", Attempts: 2}, {Code: "unsupported_tool"}} {
		_, ended := tel.Observe(t.Context(), mcpbridge.CallStart{Tool: "b", Listed: end.Code != "unsupported_tool", Transport: client.Stdio})
		ended(end)
	}
	ctx, ended = tel.Observe(t.Context(), mcpbridge.CallStart{Tool: "a", Listed: true, Parent: parent(t, dropped)})
	if place := trace.From(ctx); place.TraceID() != dropped[3:35] || !strings.HasSuffix(place.Parent(), "-00") || place.Parent() == dropped {
		t.Errorf("what the client does not record is at %q", place.Parent())
	}
	ended(mcpbridge.CallEnd{OK: true})
	tel.Close(t.Context())

	calls := c.named("tools/call a", tracepb.Span_SPAN_KIND_SERVER)
	if len(calls) != 1 {
		t.Fatalf("%d spans; want one: what a client does not record is not recorded", len(calls))
	}
	call := calls[0]
	if got := fmt.Sprintf("%x %x %s %x", call.TraceId, call.ParentSpanId, call.TraceState, call.Flags); got != clients[3:35]+" "+clients[36:52]+" a=b 301" {
		t.Errorf("the span is at %s", got)
	}
	if got := fmt.Sprintf("%x", call.SpanId); got != above.Parent()[36:52] || call.EndTimeUnixNano < call.StartTimeUnixNano || call.Status.Code != tracepb.Status_STATUS_CODE_UNSET {
		t.Errorf("the span is %v", call)
	}
	want := map[string]string{
		"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "a", "mcp.session.id": "abcdefgh",
		"mcp.protocol.version": "2025-11-25", "jsonrpc.request.id": "seven", "network.transport": "tcp", "network.protocol.name": "http", "orla.call_id": "CALL",
	}
	if got := attributes(call); !maps.Equal(got, want) {
		t.Errorf("attributes\n%v, want\n%v", got, want)
	}
	if work := c.named("tools/call a", tracepb.Span_SPAN_KIND_CLIENT); len(work) != 1 || !bytes.Equal(work[0].ParentSpanId, call.SpanId) || !bytes.Equal(work[0].TraceId, call.TraceId) {
		t.Errorf("the work is %v", work)
	}
	for i, want := range []map[string]string{
		{"error.type": "tool_error", "orla.code": "timeout", "network.transport": "pipe", "orla.attempts": ""},
		{"error.type": "-32042", "rpc.response.status_code": "-32042", "orla.attempts": "2"},
	} {
		s := c.named("tools/call b", tracepb.Span_SPAN_KIND_SERVER)[i]
		for key, value := range want {
			if attributes(s)[key] != value {
				t.Errorf("%s is %q, want %q", key, attributes(s)[key], value)
			}
		}
		if s.Status.Code != tracepb.Status_STATUS_CODE_ERROR || len(s.ParentSpanId) > 0 {
			t.Errorf("span %v", s)
		}
	}
	if unknown := c.named("tools/call", tracepb.Span_SPAN_KIND_SERVER); len(unknown) != 1 || attributes(unknown[0])["error.type"] != "unsupported_tool" {
		t.Errorf("a tool that there is not has %v", unknown)
	}
	if c.resource["service.name"] != "orla" || c.resource["telemetry.sdk.language"] != "go" || c.headers.Get("Api-Key") != "s3cret" || c.headers.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("resource %v, headers %v", c.resource, c.headers)
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", log)
	}
}

// What OpenTelemetry's SDK reads by itself wins.
func TestTheSDKsOwnVariables(t *testing.T) {
	t.Setenv("OTEL_SERVICE_NAME", "mine")
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	c := newCollector(t, nil)
	tel, _ := tracing(t, telemetry.Tracing{Endpoint: c.URL})
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	tel.Close(t.Context())
	if c.resource["service.name"] != "mine" || c.resource["deployment.environment.name"] != "test" {
		t.Errorf("resource %v", c.resource)
	}

	t.Setenv("OTEL_TRACES_SAMPLER", "always_off")
	tel, _ = tracing(t, telemetry.Tracing{Endpoint: c.URL})
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	tel.Close(t.Context())
	if c.batches != 1 {
		t.Errorf("%d batches; want the one from before", c.batches)
	}
}

// A ratio is of traces that begin here: those of a client are as it says.
func TestTheRatioOfTraces(t *testing.T) {
	c := newCollector(t, nil)
	tel, _ := tracing(t, telemetry.Tracing{Endpoint: c.URL, Sampled: true, Ratio: 0})
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	_, ended := tel.Observe(t.Context(), mcpbridge.CallStart{Tool: "b", Listed: true, Parent: parent(t, clients)})
	ended(mcpbridge.CallEnd{OK: true})
	tel.Close(t.Context())
	if a, b := c.named("tools/call a", tracepb.Span_SPAN_KIND_SERVER), c.named("tools/call b", tracepb.Span_SPAN_KIND_SERVER); len(a) != 0 || len(b) != 1 {
		t.Errorf("%d and %d spans; want 0 and 1", len(a), len(b))
	}
}

// A collector that does not take spans costs no call anything, and one warning;
// the headers are told to nobody, and to no other address.
func TestACollectorThatDoesNotWork(t *testing.T) {
	var strayed sync.Map
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { strayed.Store(r.URL.Path, true) }))
	defer elsewhere.Close()
	gone := "http://" + needs.Address(t)
	for name, c := range map[string]struct {
		answer   func(http.ResponseWriter, *http.Request)
		endpoint string
		timeout  time.Duration
		warning  string
	}{
		"it is down":     {nil, gone, 0, "connection refused"},
		"it has no room": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "s3cret", http.StatusTooManyRequests) }, "", 0, "429 Too Many Requests"},
		"it points away": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		}, "", 0, "307 Temporary Redirect"},
		"it refuses a part":  {partly, "", 0, "does not take all spans"},
		"it takes its time":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "", 100 * time.Millisecond, "Client.Timeout"},
		"it answers nothing": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "", 0, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newCollector(t, c.answer)
			if c.endpoint == "" {
				c.endpoint = server.URL
			}
			tel, log := tracing(t, telemetry.Tracing{Endpoint: c.endpoint + "/v1/traces?key=s3cret", Headers: map[string]string{"Api-Key": "s3cret"}, Timeout: c.timeout})
			for range 2000 { // several batches
				observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
			}
			tel.Close(t.Context())
			if got := log.String(); !strings.Contains(got, c.warning) || strings.Count(got, "\n") != 1 || strings.Contains(got, "s3cret") || !strings.Contains(got, "level=WARN") {
				t.Errorf("the log says %s", got)
			}
		})
	}
	strayed.Range(func(path, _ any) bool {
		t.Errorf("a redirect to %s was followed", path)
		return true
	})
}

func partly(w http.ResponseWriter, _ *http.Request) {
	body, err := proto.Marshal(&collectorpb.ExportTraceServiceResponse{PartialSuccess: &collectorpb.ExportTracePartialSuccess{RejectedSpans: 3}})
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(body)
}

// The end waits for a collector that hangs, but not for long.
func TestTheEndWaitsForAWhile(t *testing.T) {
	c := newCollector(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	tel, _ := tracing(t, telemetry.Tracing{Endpoint: c.URL, Timeout: time.Hour})
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	began := time.Now()
	tel.Close(t.Context())
	if took := time.Since(began); took > time.Minute {
		t.Errorf("the end took %s", took)
	}
}

// Spans can go elsewhere, or nowhere, while Orla runs.
func TestTracesMoveWithTheConfiguration(t *testing.T) {
	first, second := newCollector(t, nil), newCollector(t, nil)
	tel, _ := tracing(t, telemetry.Tracing{Endpoint: first.URL})
	observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	for _, to := range []string{second.URL, ""} {
		if err := tel.Trace(t.Context(), telemetry.Tracing{Endpoint: to}); err != nil {
			t.Fatal(err)
		}
		observe(tel, "a", true, mcpbridge.CallEnd{OK: true})
	}
	if first.batches != 1 || second.batches != 1 {
		t.Errorf("%d and %d batches; want one each", first.batches, second.batches)
	}
	if err := tel.Trace(t.Context(), telemetry.Tracing{Endpoint: "ftp://x"}); err == nil {
		t.Error("an endpoint that is none is taken")
	}
}

func BenchmarkObserveWithTraces(b *testing.B) {
	c := newCollector(b, nil)
	tel, _ := tracing(b, telemetry.Tracing{Endpoint: c.URL})
	for name, from := range map[string]trace.Context{"recorded": {}, "not recorded": parent(b, dropped)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, ended := tel.Observe(context.Background(), mcpbridge.CallStart{Tool: "a", Listed: true, Parent: from})
				ended(mcpbridge.CallEnd{OK: true})
			}
		})
	}
}
