package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/history"
)

// events are what the history has of some tools.
func events(l *logging, tools ...string) []string {
	all := []string{}
	for _, line := range l.history().Last(history.Query{Tools: tools}) {
		all = append(all, line.Event)
	}
	return all
}

// SPEC I1, D5: the history has every line at info and above whatever is shown,
// by its tool, and as the JSON log has it.
func TestI1TheHistoryHasWhatIsNotShown(t *testing.T) {
	var out bytes.Buffer
	l := newLogging(&out, "")
	cfg := defaults()
	cfg.LogLevel = "error"
	l.configure(cfg.LogLevel, cfg.LogFormat, nil)
	l.Info("state", "tool", "a", "to", "READY")
	l.Debug("request", "tool", "a")
	l.With("tool", "a").WithGroup("g").Warn("within", "tool", "b")
	l.Error("stderr", "tool", "b", "stream", "stderr", "text", "line\n\x1b[31m")
	l.Info("call", "ok", false, "tool", "a", "code", "timeout")
	l.Info("call", "ok", false, "tool", "nonsense", "code", "unsupported_tool")
	for tool, want := range map[string][]string{
		"a":        {"state", "within", "call"},
		"b":        {"stderr"},
		"nonsense": {},
	} {
		if got := events(l, tool); !slices.Equal(got, want) {
			t.Errorf("of %q there is %q; want %q", tool, got, want)
		}
	}
	if got, want := events(l), []string{"state", "within", "stderr", "call", "call"}; !slices.Equal(got, want) {
		t.Errorf("in all there is %q; want %q", got, want)
	}
	kept := l.history().Last(history.Query{Tools: []string{"b"}})[0]
	if out.String() != string(kept.JSON)+"\n" || kept.Level != slog.LevelError || kept.Time.IsZero() {
		t.Errorf("shown is %q; kept is %q", &out, kept.JSON)
	}
	cfg.LogLevel = "debug"
	l.configure(cfg.LogLevel, cfg.LogFormat, nil)
	l.Debug("request", "tool", "a")
	if got := events(l, "a"); got[len(got)-1] != "request" {
		t.Errorf("a line at debug that is shown is not kept: %q", got)
	}
}

// A message or a text with line ends or escapes of a terminal stays one plain
// line, in JSON and for people.
func TestI1NoLineOfTheLogBreaks(t *testing.T) {
	for _, format := range []string{"json", "pretty"} {
		var out bytes.Buffer
		l := newLogging(&out, "")
		cfg := defaults()
		cfg.LogFormat = format
		l.configure(cfg.LogLevel, cfg.LogFormat, nil)
		nasty := "one\ntwo\x1b[2J\x00\u009b31m\u202e\xff"
		r := slog.NewRecord(time.Now(), slog.LevelInfo, nasty, 0)
		r.Add("text", nasty, "stderr", []byte(nasty), "list", []string{nasty})
		if err := l.Handler().Handle(t.Context(), r); err != nil {
			t.Error(err)
		}
		shown := out.String()
		if strings.Count(shown, "\n") != 1 || strings.ContainsAny(shown, "\x1b\x00\u009b\u202e") {
			t.Errorf("%s: %q", format, shown)
		}
		var line map[string]any
		if err := json.Unmarshal(l.history().Last(history.Query{})[0].JSON, &line); err != nil {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// callLine is what a call leaves in the log.
func callLine(log *slog.Logger) {
	log.LogAttrs(context.Background(), slog.LevelInfo, "call",
		slog.String("tool", "hello"), slog.String("call_id", "0190c9b0c6f07bd0b1a55bd2d0a5a5a5"),
		slog.Float64("duration_ms", 1.234), slog.Bool("ok", true), slog.String("caller", "anonymous"),
		slog.String("session", "ABCDEFGH"), slog.Int("request_bytes", 64), slog.Int("response_bytes", 164))
}

// What a line of the log costs, its way into the history included.
func BenchmarkLogLine(b *testing.B) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	log := newLogging(null, "")
	b.ReportAllocs()
	for b.Loop() {
		callLine(log.Logger)
	}
}

// SPEC I2: a panic in an HTTP handler is logged with its stack, and what else
// net/http says is one record for debugging.
func TestI2PanicsOfHTTPHandlersAreLogged(t *testing.T) {
	var out bytes.Buffer
	l := newLogging(&out, "")
	w := newWeb(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("oh\nno") }), l.Logger)
	if err := w.listen(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if resp, err := http.Get(w.url()); err == nil {
		_ = resp.Body.Close()
		t.Errorf("got HTTP %d", resp.StatusCode)
	}
	w.shutdown(t.Context())
	l.level.Set(slog.LevelDebug)
	w.server.ErrorLog.Print("http: \x1b[31mTLS\nhandshake")
	lines := l.history().Last(history.Query{})
	if len(lines) != 2 || lines[0].Event != "panic in an HTTP request" || lines[0].Level != slog.LevelError || lines[1].Level != slog.LevelDebug {
		t.Fatalf("the log has %q", &out)
	}
	var line struct{ Panic, Stack string }
	if err := json.Unmarshal(lines[0].JSON, &line); err != nil || !strings.Contains(line.Panic, "oh") || !strings.Contains(line.Stack, "log_test.go") {
		t.Errorf("%v: %s", err, lines[0].JSON)
	}
}

// SPEC I2: the log has neither arguments nor results, whatever is wrong with
// them. It says where they do not fit.
func TestI2ArgumentsAndResultsAreNotLogged(t *testing.T) {
	const secret = "hunter2"
	tools := t.TempDir()
	writeTool(t, tools, "strict.sh", "#!/bin/sh\n# /// tool\n# description: Wants a number.\n# input_schema:\n#   count: integer\n#   name: string?\n# ///\necho hello\n")
	writeTool(t, tools, "wrong.sh", "#!/bin/sh\n# /// tool\n# description: Answers what does not fit.\n# output_schema: {type: object, properties: {n: {type: integer}}}\n# ///\necho '{\"n\": \""+secret+"\"}'\n")
	writeTool(t, tools, "mixed.sh", "#!/bin/sh\n# /// tool\n# description: Is no result.\n# output: mcp\n# ///\necho '{\"content\": \""+secret+"\"}'\n")
	o := serveOrla(t, tools)
	for _, c := range []struct{ tool, args string }{
		{"strict", `{"count": "` + secret + `"}`}, {"strict", `"` + secret + `"`}, {"wrong", `{}`}, {"mixed", `{}`},
	} {
		if a, err := o.call(c.tool, c.args); err != nil || a.Result != nil && !a.Result.IsError {
			t.Errorf("%s: %+v, %v", c.tool, a, err)
		}
	}
	long := strings.Repeat("x", 200<<10)
	if _, err := o.call(long, "{}"); err != nil {
		t.Error(err)
	}
	o.waitLog("call", func(l map[string]any) bool { return l["code"] == "unsupported_tool" })
	o.mu.Lock()
	defer o.mu.Unlock()
	named := false
	for _, l := range o.lines {
		raw, _ := json.Marshal(l)
		if strings.Contains(string(raw), secret) || len(raw) > 64<<10 {
			t.Errorf("in the log: %.500s", raw)
		}
		reason, _ := l["reason"].(string)
		named = named || strings.Contains(reason, "count")
	}
	if !named {
		t.Error("no line names the argument that does not fit")
	}
}

// SPEC I2: a start that fails is in the log where nobody sees what is printed.
func TestI2StartThatFailsIsInTheLogFile(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	path := filepath.Join(t.TempDir(), "orla.log")
	o := startOrla(t, t.TempDir(), "--listen", taken.Addr().String(), "--log-file", path, "--tools-dir", t.TempDir())
	if code := o.wait(); code != int(exitFailed) {
		t.Errorf("exit code %d", code)
	}
	lines := linesOf(t, path)
	last := lines[len(lines)-1]
	if text, _ := last["err"].(string); last["msg"] != "failed" || last["level"] != "fatal" || !strings.Contains(text, "in use") {
		t.Errorf("the log ends with %v", last)
	}
}

// A character that a terminal obeys is found wherever in a line it is.
func TestI1EscapedWhereverItIs(t *testing.T) {
	for size := range 40 {
		for at := range size {
			line := []byte(strings.Repeat("a", at) + "\u202e" + strings.Repeat("a", size-at-1))
			if got, want := string(escaped(line)), strings.Repeat("a", at)+`\u202e`+strings.Repeat("a", size-at-1); got != want {
				t.Fatalf("%q became %q", line, got)
			}
		}
		if plain := strings.Repeat("a", size); string(escaped([]byte(plain))) != plain {
			t.Fatalf("%q became something else", plain)
		}
	}
}
