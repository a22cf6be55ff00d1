package logging

import (
	"bytes"
	"context"
	"encoding/json"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
)

// events are what the history has of some tools.
func events(l *Log, tools ...string) []string {
	all := []string{}
	for _, line := range l.History().Last(history.Query{Tools: tools}) {
		all = append(all, line.Event)
	}
	return all
}

// SPEC I1, D5: the history has every line at info and above whatever is shown,
// by its tool, and as the JSON log has it.
func TestI1TheHistoryHasWhatIsNotShown(t *testing.T) {
	var out bytes.Buffer
	l := New(&out, "")
	l.Configure("error", JSON, nil)
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
	kept := l.History().Last(history.Query{Tools: []string{"b"}})[0]
	if out.String() != string(kept.JSON)+"\n" || kept.Level != slog.LevelError || kept.Time.IsZero() {
		t.Errorf("shown is %q; kept is %q", &out, kept.JSON)
	}
	l.Configure("debug", JSON, nil)
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
		l := New(&out, "")
		l.Configure("info", format, nil)
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
		if err := json.Unmarshal(l.History().Last(history.Query{})[0].JSON, &line); err != nil {
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
	log := New(null, "")
	b.ReportAllocs()
	for b.Loop() {
		callLine(log.Logger)
	}
}

// SPEC S2: what Go's own library says of a service does not fill the log.
func TestS2WhatGosLibraryLogsIsForDebugging(t *testing.T) {
	flags, to := log.Flags(), log.Writer()
	defer func() {
		log.SetFlags(flags)
		log.SetOutput(to)
	}()
	var out bytes.Buffer
	l := New(&out, "")
	l.TakeStandard()
	l.Configure("info", JSON, nil)
	log.Print("an unhandled frame")
	if out.Len() > 0 || len(events(l)) > 0 {
		t.Errorf("at level info there is %q", &out)
	}
	said := []byte("an unhandled frame\n")
	if n := testing.AllocsPerRun(100, func() { _, _ = log.Writer().Write(said) }); n > 0 {
		t.Errorf("a line that nobody sees costs %v allocations", n)
	}
	l.Configure("debug", JSON, nil)
	log.Print("a frame\x1b[31m")
	var line struct{ Level, Text string }
	if err := json.Unmarshal(out.Bytes(), &line); err != nil || line.Level != "debug" || line.Text != "a frame\x1b[31m" {
		t.Errorf("at level debug there is %q (%v)", &out, err)
	}
}
