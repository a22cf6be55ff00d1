package program

import (
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// metrics scrapes a running Orla.
func (o *running) metrics(header ...string) (status int, text string) {
	o.t.Helper()
	req, err := http.NewRequest(http.MethodGet, strings.TrimSuffix(o.url, "/mcp")+"/metrics", nil)
	if err != nil {
		o.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		o.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		o.t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// wantMetrics waits until a scrape has all of the lines, and returns it.
func (o *running) wantMetrics(lines ...string) string {
	o.t.Helper()
	var text string
	testkit.Eventually(o.t, "the metrics have "+strings.Join(lines, ", "), func() bool {
		_, text = o.metrics()
		return !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains("\n"+text, "\n"+line) })
	})
	return text
}

// SPEC G6: /metrics tells of a running Orla, under names that Prometheus's own
// tool finds in order.
func TestG6MetricsOfARunningOrla(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "promtool")
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "greet", "#!/bin/sh\n# /// tool\n# description: x\n# input_schema:\n#   name: string\n# ///\necho hello\n")
	testkit.WriteTool(t, tools, "fails", "#!/bin/sh\nexit 3\n")
	cap := newPack(t, tools, "cap", "restart: {initial_ms: 10}", map[string]string{"answer.py": says("os._exit(1) if params['arguments'].get('die') else 'hi'")})
	o := serveOrla(t, tools)
	for tool, args := range map[string]string{"greet": `{"name":"Ada"}`, "fails": `{}`, "cap": `{}`, "nope": `{}`} {
		if _, err := o.call(tool, args); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := o.call("greet", `{}`); err != nil { // refused
		t.Fatal(err)
	}
	text := o.wantMetrics(
		`orla_calls_total{code="ok",tool="greet"} 1`, `orla_calls_total{code="invalid_input",tool="greet"} 1`,
		`orla_calls_total{code="execution_failed",tool="fails"} 1`, `orla_calls_total{code="ok",tool="cap"} 1`,
		`orla_calls_total{code="unsupported_tool",tool="(unknown)"} 1`, `orla_call_duration_seconds_count{tool="greet"} 2`,
		`orla_capsule_state{state="READY",tool="cap"} 1`, `orla_capsule_restarts_total{tool="cap"} 0`,
		`orla_processes 1`, `orla_capsule_memory_bytes{tool="cap"} `, `orla_tools 3`, `orla_calls_in_flight 0`, `orla_log_dropped_lines_total 0`, `orla_build_info{`, `process_open_fds `,
	)
	check := exec.Command("promtool", "check", "metrics")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}

	if _, err := o.call("cap", `{"die":true}`); err != nil {
		t.Fatal(err)
	}
	o.wantMetrics(`orla_calls_total{code="crashed",tool="cap"} 1`, `orla_capsule_restarts_total{tool="cap"} 1`, `orla_capsule_state{state="READY",tool="cap"} 1`)
	cap.save("tool.yaml", "name: cap\nversion: ")
	testkit.WriteTool(t, tools, "late", "#!/bin/sh\n")
	o.wantMetrics(`orla_reloads_total{result="applied"} `, `orla_tools 4`)
	if out, err := exec.Command("rm", "-r", filepath.Join(tools, "greet"), cap.dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	o.wantMetrics(`orla_tools 2`)
	testkit.Eventually(t, "tools that have gone have no series", func() bool { // a scrape may see them go
		_, text = o.metrics()
		return !strings.Contains(text, `tool="cap"`) && !strings.Contains(text, `tool="greet"`)
	})
}

// SPEC G8: where a token is asked for, it is asked for here too.
func TestG6MetricsNeedTheToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "tools/greet", "#!/bin/sh\n")
	testkit.WriteTool(t, dir, "token", "0123456789abcdef\n")
	config := testkit.WriteTool(t, dir, "orla.yaml", "port: 0\nauth: {tokens: [{name: prometheus, file: token}]}\n")
	o := startOrla(t, dir, "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	if status, text := o.metrics(); status != http.StatusUnauthorized || strings.Contains(text, "orla_") {
		t.Errorf("without a token: %d %.100s", status, text)
	}
	if status, text := o.metrics("Authorization", "Bearer 0123456789abcdef"); status != http.StatusOK || !strings.Contains(text, "\norla_tools 1\n") {
		t.Errorf("with the token: %d %.100s", status, text)
	}
	testkit.WriteTool(t, dir, "orla.yaml", "port: 0\nauth: {tokens: [{name: prometheus, file: token}]}\nunknown: 1\n")
	o.signal(syscall.SIGHUP)
	testkit.Eventually(t, "the refused reload is counted", func() bool {
		_, text := o.metrics("Authorization", "Bearer 0123456789abcdef")
		return strings.Contains(text, "\norla_reloads_total{result=\"refused\"} 1\n")
	})
}
