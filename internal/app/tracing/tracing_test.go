package tracing

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/observe/telemetry"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func TestWhereTracesGo(t *testing.T) {
	const file = "http://file:4318"
	for name, c := range map[string]struct {
		environ []string
		file    config.TracingConfig
		want    telemetry.Tracing // without its headers
		headers string
		warning string
	}{
		"nowhere": {},
		"as the file says": {
			file: config.TracingConfig{Endpoint: file, SampleRatio: .25},
			want: telemetry.Tracing{Endpoint: file + "/v1/traces", Ratio: .25, Sampled: true},
		},
		"as the file says in full": {
			file: config.TracingConfig{Endpoint: file + "/v1/traces/"},
			want: telemetry.Tracing{Endpoint: file + "/v1/traces", Sampled: true},
		},
		"as the environment says": {
			environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=https://env/base/", "OTEL_EXPORTER_OTLP_HEADERS=a=b%20c, d = e", "OTEL_EXPORTER_OTLP_TIMEOUT=2500", "OTEL_TRACES_SAMPLER=always_on"},
			file:    config.TracingConfig{Endpoint: file, SampleRatio: .25},
			want:    telemetry.Tracing{Endpoint: "https://env/base/v1/traces", Timeout: 2500 * time.Millisecond, Ratio: .25},
			headers: "map[a:b c d:e]",
		},
		"as the environment says of traces": {
			environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=https://env", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://traces/x", "OTEL_EXPORTER_OTLP_HEADERS=a=b", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=c=d"},
			want:    telemetry.Tracing{Endpoint: "https://traces/x", Sampled: true},
			headers: "map[c:d]",
		},
		"with a query": {
			file: config.TracingConfig{Endpoint: file + "?key=x"},
			want: telemetry.Tracing{Endpoint: file + "/v1/traces?key=x", Sampled: true},
		},
		"in full, with a query": {
			file: config.TracingConfig{Endpoint: file + "/otlp/v1/traces/?key=x"},
			want: telemetry.Tracing{Endpoint: file + "/otlp/v1/traces?key=x", Sampled: true},
		},
		"in full, with a path that is escaped": {
			file: config.TracingConfig{Endpoint: file + "/a%2Fb/v1/traces"},
			want: telemetry.Tracing{Endpoint: file + "/a%2Fb/v1/traces", Sampled: true},
		},
		"as the environment says, never in full": {
			environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT= https://env/v1/traces ", "OTEL_SDK_DISABLED=false", "OTEL_EXPORTER_OTLP_TIMEOUT=-5"},
			want:    telemetry.Tracing{Endpoint: "https://env/v1/traces/v1/traces", Sampled: true},
		},
		"with headers of the environment alone": {
			environ: []string{"OTEL_EXPORTER_OTLP_HEADERS=a=b+c,, d = e\tf ,", "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"},
			file:    config.TracingConfig{Endpoint: file, HeadersFile: "/there is none"},
			want:    telemetry.Tracing{Endpoint: file + "/v1/traces", Sampled: true},
			headers: "map[a:b+c d:e\tf]",
		},
		"by JSON":                             {environ: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json"}, file: config.TracingConfig{Endpoint: file}, warning: "only http/protobuf"},
		"to a fragment":                       {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://env#x"}, warning: "OTEL_EXPORTER_OTLP_ENDPOINT: must not have a fragment"},
		"to a blank":                          {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://env/ x"}, warning: "OTEL_EXPORTER_OTLP_ENDPOINT: wants an http"},
		"for traces to no address":            {environ: []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=env:4318"}, warning: "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: wants an http"},
		"for traces by another protocol":      {environ: []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"}, file: config.TracingConfig{Endpoint: file}, warning: "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: only"},
		"for traces with other headers":       {environ: []string{"OTEL_EXPORTER_OTLP_TRACES_HEADERS=s3cret"}, file: config.TracingConfig{Endpoint: file}, warning: "OTEL_EXPORTER_OTLP_TRACES_HEADERS: wants"},
		"where collectors are":                {environ: []string{"OTEL_TRACES_EXPORTER=otlp"}, want: telemetry.Tracing{Endpoint: "http://localhost:4318/v1/traces", Sampled: true}},
		"nowhere, says the SDK's switch":      {environ: []string{"OTEL_SDK_DISABLED=TRUE"}, file: config.TracingConfig{Endpoint: file}},
		"nowhere, says the environment":       {environ: []string{"OTEL_TRACES_EXPORTER=none"}, file: config.TracingConfig{Endpoint: file}},
		"by another exporter":                 {environ: []string{"OTEL_TRACES_EXPORTER=zipkin"}, file: config.TracingConfig{Endpoint: file}, warning: "only otlp"},
		"by another protocol":                 {environ: []string{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}, file: config.TracingConfig{Endpoint: file}, warning: "only http/protobuf"},
		"to something that is not an address": {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318"}, warning: "wants an http or https address"},
		"to a port that is out of range":      {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:99999"}, warning: "has an invalid port"},
		"in batches of less than none":        {environ: []string{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=-1"}, file: config.TracingConfig{Endpoint: file}, warning: "between 1 and"},
		"from a queue without an end":         {environ: []string{"OTEL_BSP_MAX_QUEUE_SIZE=99999999999999"}, file: config.TracingConfig{Endpoint: file}, warning: "between 1 and"},
		"without a pause":                     {environ: []string{"OTEL_BSP_SCHEDULE_DELAY=0"}, file: config.TracingConfig{Endpoint: file}, warning: "between 1 and"},
		"to an address with its password":     {environ: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://me:s3cret@collector"}, warning: "must not have a password"},
	} {
		cfg := &config.Loaded{Config: config.Config{Tracing: c.file}}
		got, warning, err := Settings(cfg, c.environ)
		headers := fmt.Sprint(got.Headers)
		got.Headers = nil
		if err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || c.headers != "" && headers != c.headers {
			t.Errorf("%s: %+v %s, %v; want %+v %s", name, got, headers, err, c.want, c.headers)
		}
		if (warning != nil) != (c.warning != "") || warning != nil && (!strings.Contains(warning.Error(), c.warning) || strings.Contains(warning.Error(), "s3cret")) {
			t.Errorf("%s: warning %v, want %q", name, warning, c.warning)
		}
	}
	for _, bad := range []string{"s3cret", "a=b,=s3cret", "a=%zzs3cret", "a=s3cret%0a", "a=s3cret%7f", "a:b=s3cret", "\u00e4=s3cret", "a b=s3cret"} {
		to, warning, err := Settings(&config.Loaded{}, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://env", "OTEL_EXPORTER_OTLP_HEADERS=" + bad})
		if err != nil || to.Endpoint != "" || warning == nil || strings.Contains(warning.Error(), "s3cret") {
			t.Errorf("headers %q gave %+v, %v, %v", bad, to, warning, err)
		}
	}
}

// headers_file has a header in each line, but for comments and blank lines. It is found next to the configuration.
func TestTheFileOfHeaders(t *testing.T) {
	dir := t.TempDir()
	path := testkit.WriteTool(t, dir, "headers", "# a comment\n\n  Api-Key :  a: b\t# c \r\nx:\n")
	for _, file := range []string{"headers", path} {
		cfg := &config.Loaded{File: dir + "/orla.yaml", Config: config.Config{Tracing: config.TracingConfig{Endpoint: "http://x", HeadersFile: file}}}
		to, warning, err := Settings(cfg, nil)
		if err != nil || warning != nil || !maps.Equal(to.Headers, map[string]string{"Api-Key": "a: b\t# c", "x": ""}) {
			t.Errorf("%s: %q, %v, %v", file, to.Headers, warning, err)
		}
	}
}

func TestAFileOfHeadersThatIsNone(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{"Api-Key: a\ns3cret\n": ":2: wants NAME: VALUE", "Api Key: s3cret": ":1: wants", "X: a\x00s3cret": ":1: wants"} {
		testkit.WriteTool(t, dir, "headers", text)
		cfg := &config.Loaded{File: dir + "/orla.yaml", Config: config.Config{Tracing: config.TracingConfig{Endpoint: "http://x", HeadersFile: "headers"}}}
		if _, _, err := Settings(cfg, nil); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q gave %v, want %s", text, err, want)
		}
	}
	cfg := &config.Loaded{Config: config.Config{Tracing: config.TracingConfig{Endpoint: "http://x", HeadersFile: dir + "/none"}}}
	if _, _, err := Settings(cfg, nil); err == nil || !strings.Contains(err.Error(), "tracing.headers_file: ") {
		t.Errorf("no file gave %v", err)
	}
}
