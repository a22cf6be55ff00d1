// Package tracing reads where spans go: from the configuration, and from the variables of OpenTelemetry.
package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/observe/telemetry"
)

// tracesPath is where a collector takes traces (OTLP, "OTLP/HTTP Request").
const tracesPath = "/v1/traces"

// The variables of OpenTelemetry that Orla reads. The SDK reads those of the sampler, the resource and
// the batches.
const (
	otelDisabled       = "OTEL_SDK_DISABLED"
	otelExporter       = "OTEL_TRACES_EXPORTER"
	otelEndpoint       = "OTEL_EXPORTER_OTLP_ENDPOINT"
	otelTracesEndpoint = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	otelSampler        = "OTEL_TRACES_SAMPLER"
)

// eitherVariable returns the value of a setting of the exporter. The variable for traces wins over the
// general one. from is the variable that has the value.
func eitherVariable(environ []string, name string) (value, from string) {
	for _, of := range []string{"OTEL_EXPORTER_OTLP_TRACES_", "OTEL_EXPORTER_OTLP_"} {
		if value := otelValue(environ, of+name); value != "" {
			return value, of + name
		}
	}
	return "", ""
}

// otelValue returns the value of a variable of OpenTelemetry.
func otelValue(environ []string, name string) string {
	value, _ := config.LookupEnv(environ, name)
	return strings.TrimSpace(value)
}

// destination returns the endpoint for traces; "" for none. from is the setting that says so.
func destination(cfg *config.Loaded, environ []string) (endpoint, from string, err error) {
	var base string
	switch whole := otelValue(environ, otelTracesEndpoint); {
	case whole != "":
		_, err := config.CollectorURL(whole)
		return whole, otelTracesEndpoint, err // as it is
	case otelValue(environ, otelEndpoint) != "":
		base, from = otelValue(environ, otelEndpoint), otelEndpoint
	case cfg.Tracing.Endpoint != "":
		base, from = cfg.Tracing.Endpoint, "tracing.endpoint"
	case otelValue(environ, otelExporter) == "otlp":
		base = "http://localhost:4318"
	default:
		return "", "", nil
	}
	u, err := config.CollectorURL(base)
	if err != nil {
		return base, from, err
	}
	whole := strings.HasSuffix(strings.TrimRight(u.Path, "/"), tracesPath)
	if whole && from != otelEndpoint { // the variable's never is
		u = u.JoinPath("../..")
	}
	return u.JoinPath(tracesPath).String(), from, nil
}

// Settings returns those of the configuration and of the variables of OpenTelemetry. The variables
// win. An invalid variable concerns the machine rather than Orla: it turns traces off, and is returned
// as a warning.
func Settings(cfg *config.Loaded, environ []string) (to telemetry.Tracing, warning, err error) {
	exporter := otelValue(environ, otelExporter)
	if strings.EqualFold(otelValue(environ, otelDisabled), "true") || exporter == "none" {
		return to, nil, nil
	}
	endpoint, from, fault := destination(cfg, environ)
	if endpoint == "" {
		return to, nil, nil
	}
	to.Endpoint = endpoint
	protocol, named := eitherVariable(environ, "PROTOCOL")
	switch {
	case fault != nil:
		warning = fmt.Errorf("%s: %w", from, fault)
	case exporter != "" && exporter != "otlp":
		warning = fmt.Errorf("%s: only otlp is possible, not %q", otelExporter, exporter)
	case protocol != "" && protocol != "http/protobuf":
		warning = fmt.Errorf("%s: only http/protobuf is possible, not %q; collectors take it at port 4318", named, protocol)
	}
	if warning == nil {
		warning = batching(environ)
	}
	given, named := eitherVariable(environ, "HEADERS")
	if warning == nil && given != "" {
		to.Headers, warning = variableHeaders(given, named)
	}
	if warning != nil {
		return telemetry.Tracing{}, warning, nil
	}
	timeout, _ := eitherVariable(environ, "TIMEOUT")
	if ms, err := strconv.Atoi(timeout); err == nil && ms > 0 {
		to.Timeout = time.Duration(ms) * time.Millisecond
	}
	to.Ratio, to.Sampled = cfg.Tracing.SampleRatio, otelValue(environ, otelSampler) == ""
	if given == "" && cfg.Tracing.HeadersFile != "" {
		to.Headers, err = fileHeaders(cfg)
	}
	return to, nil, err
}

// batching checks the variables for batches: the SDK accepts any number, and panics or spins with some.
func batching(environ []string) error {
	const most = 1 << 20
	for _, name := range [...]string{"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY"} {
		value, _ := config.LookupEnv(environ, name)
		if n, err := strconv.Atoi(value); err == nil && (n < 1 || n > most) { // the SDK ignores a value that is not a number
			return fmt.Errorf("%s: must be between 1 and %d, got %d", name, most, n)
		}
	}
	return nil
}

// variableHeaders reads headers from a variable in the format of W3C Baggage. The error does not repeat
// the value, which is secret.
func variableHeaders(text, from string) (map[string]string, error) {
	headers := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil || !headerLike(name, value) {
			return nil, errors.New(from + ": wants NAME=VALUE, with commas between")
		}
		headers[name] = value
	}
	return headers, nil
}

// fileHeaders reads the headers of tracing.headers_file. The error does not repeat them either.
func fileHeaders(cfg *config.Loaded) (map[string]string, error) {
	path := cfg.Tracing.HeadersFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(cfg.File), path)
	}
	data, err := config.ReadSmall(path)
	if err != nil {
		return nil, cfg.At("tracing.headers_file", err)
	}
	headers := map[string]string{}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !ok || !headerLike(name, value) {
			return nil, cfg.At("tracing.headers_file", fmt.Errorf("%s:%d: wants NAME: VALUE", path, n))
		}
		headers[name] = value
	}
	return headers, nil
}

// headerLike reports whether a header can be sent.
func headerLike(name, value string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) &&
		!strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
