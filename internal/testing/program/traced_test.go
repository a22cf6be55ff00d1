package program

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	collectorpb "go.opentelemetry.io/proto/slim/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/orla-project/orla/internal/testing/testkit"
)

const (
	fromHeader = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	fromMeta   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)

// spanned is a collector, and the spans that it was sent: name, kind, trace and
// ids of the span and of its parent.
type spanned struct {
	*httptest.Server

	mu    sync.Mutex // guards what follows
	spans []span
	keys  []string // of the header Api-Key
}

type span struct{ name, kind, trace, id, parent string }

func newSpanned(t *testing.T) *spanned {
	c := &spanned{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("POST %s: %v", r.URL.Path, err)
		}
		var batch collectorpb.ExportTraceServiceRequest
		if err := proto.Unmarshal(body, &batch); err != nil {
			t.Errorf("a batch: %v", err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.keys = append(c.keys, r.Header.Get("Api-Key"))
		for _, from := range batch.ResourceSpans {
			for _, s := range from.ScopeSpans[0].Spans {
				c.spans = append(c.spans, span{s.Name, s.Kind.String(), fmt.Sprintf("%x", s.TraceId), fmt.Sprintf("%x", s.SpanId), fmt.Sprintf("%x", s.ParentSpanId)})
			}
		}
	}))
	t.Cleanup(c.Close)
	return c
}

// find returns the span of a trace and a kind; the zero value if there is none.
func (c *spanned) find(trace, kind string) span {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.trace == trace && s.kind == kind {
			return s
		}
	}
	return span{}
}

// heardTrace calls a tool with a trace in the header, and in _meta if there is
// one, and returns what the tool says that it has heard.
func (o *running) heardTrace(tool, meta string) string {
	o.t.Helper()
	params := fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool)
	if meta != "" {
		params = fmt.Sprintf(`{"name":%q,"arguments":{},"_meta":{"traceparent":%q}}`, tool, meta)
	}
	req, err := http.NewRequest(http.MethodPost, o.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`))
	if err != nil {
		o.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Traceparent", fromHeader)
	req.Header.Set("Tracestate", "vendor=1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	_, data, _ := strings.Cut(string(raw), "data: ")
	var a answer
	if err := json.Unmarshal([]byte(data), &a); err != nil || a.Result == nil || len(a.Result.Content) == 0 {
		o.t.Fatalf("%v: %s", err, raw)
	}
	return strings.TrimSpace(a.Result.Content[0].Text)
}

// tracedTools is a folder with a shell tool and a Python capsule, each of which
// says what trace it has heard of.
func tracedTools(t *testing.T) string {
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "sh", "#!/bin/sh\necho \"$TRACEPARENT|$TRACESTATE\"\n")
	newPack(t, tools, "py", "", map[string]string{"answer.py": says("params.get('_meta', {}).get('traceparent', '') + '|' + params.get('_meta', {}).get('tracestate', '')")})
	return tools
}

// Without tracing, a client's trace goes past Orla to the tool as it is, and
// what Orla itself was started in goes nowhere.
func TestATracePassesThrough(t *testing.T) {
	t.Parallel()
	o := serveOrla(t, tracedTools(t), "TRACEPARENT=00-11111111111111111111111111111111-1111111111111111-01")
	for _, tool := range []string{"sh", "py"} {
		if got, want := o.heardTrace(tool, ""), fromHeader+"|vendor=1"; got != want {
			t.Errorf("%s heard %q, want %q", tool, got, want)
		}
		if got, want := o.heardTrace(tool, fromMeta), fromMeta+"|"; got != want {
			t.Errorf("%s heard %q, want %q", tool, got, want)
		}
		if got := o.mustCall(tool); strings.TrimSpace(got) != "|" {
			t.Errorf("%s heard %q without a trace", tool, got)
		}
	}
}

// With tracing, the tool is told of a span of Orla's in the client's trace, and
// a collector gets the spans: of the call below the client's, of the work below
// that of the call. The headers come from their file, and move with it.
func TestACallIsTraced(t *testing.T) {
	t.Parallel()
	c := newSpanned(t)
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "headers", "# for the collector\nApi-Key: s3cret\n")
	config := testkit.WriteTool(t, dir, "orla.yaml", fmt.Sprintf("port: 0\ntools_dir: %s\nlog_level: debug\ntracing: {endpoint: %q, headers_file: headers}\n", tracedTools(t), c.URL))
	o := startPrepared(t, dir, withEnv("OTEL_BSP_SCHEDULE_DELAY=50"), orlaBinary(t), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)

	for tool, heard := range map[string]string{"sh": o.heardTrace("sh", ""), "py": o.heardTrace("py", fromMeta)} {
		sent := map[string]string{"sh": fromHeader, "py": fromMeta}[tool]
		var call, work span
		testkit.Eventually(t, tool+" has its spans", func() bool {
			call, work = c.find(sent[3:35], "SPAN_KIND_SERVER"), c.find(sent[3:35], "SPAN_KIND_CLIENT")
			return call != span{} && work != span{}
		})
		if call.name != "tools/call "+tool || call.parent != sent[36:52] || work.parent != call.id {
			t.Errorf("the spans of %s are %+v, %+v", tool, call, work)
		}
		if want := "00-" + sent[3:35] + "-" + work.id + "-01"; !strings.HasPrefix(heard, want+"|") {
			t.Errorf("%s heard %q, want %q", tool, heard, want)
		}
		o.waitLog("call", func(l map[string]any) bool { return l["tool"] == tool && l["trace_id"] == sent[3:35] })
	}

	testkit.WriteTool(t, dir, "headers", "Api-Key: rotated\n")
	o.signal(syscall.SIGHUP)
	o.waitLog("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" })
	o.mustCall("sh")
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.keys); n < 2 || c.keys[0] != "s3cret" || c.keys[n-1] != "rotated" {
		t.Errorf("the collector was sent the keys %q", c.keys)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if log := fmt.Sprint(o.lines); strings.Contains(log, "s3cret") || strings.Contains(log, "rotated") {
		t.Error("the log has the key")
	}
}
