package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// SPEC I1: what is written without slog's handler is what that would write.
func TestI1SimpleLinesAreAsSlogWritesThem(t *testing.T) {
	plain := slog.NewRecord(time.Unix(1, 2), slog.LevelInfo, "call", 0)
	plain.Add("tool", "echo", "duration_ms", 1.5, "ok", true)
	if _, ok := appendSimple(nil, plain); !ok {
		t.Error("the line of a call is not simple")
	}
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,12}`), rapid.String())
		value := rapid.OneOf(
			rapid.Map(text, slog.StringValue),
			rapid.Map(rapid.Int64(), slog.Int64Value),
			rapid.Map(rapid.Bool(), slog.BoolValue),
			rapid.Map(rapid.Float64(), slog.Float64Value),
			rapid.Map(rapid.Int64Range(-1e9, 1e9), func(n int64) slog.Value { return slog.Float64Value(float64(n) / 1000) }),
			rapid.SampledFrom([]slog.Value{
				{},
				slog.DurationValue(time.Second), slog.TimeValue(time.Unix(1, 2)), slog.Float64Value(math.Inf(1)),
				slog.GroupValue(slog.Int("a", 1)), slog.AnyValue([]string{"a"}), slog.Uint64Value(1),
			}),
		)
		level := rapid.SampledFrom([]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError, levelFatal, 2})
		at := time.Unix(rapid.Int64Range(-1e11, 1e12).Draw(r, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(r, "nanoseconds"))
		record := slog.NewRecord(rapid.SampledFrom([]time.Time{at, at.UTC(), {}}).Draw(r, "time"), level.Draw(r, "level"), text.Draw(r, "message"), 0)
		for range rapid.IntRange(0, 9).Draw(r, "attributes") {
			record.AddAttrs(slog.Attr{Key: text.Draw(r, "key"), Value: value.Draw(r, "value")})
		}
		got, ok := appendSimple(nil, record)
		if !ok {
			return
		}
		var want bytes.Buffer
		handler := slog.NewJSONHandler(&want, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: lowerLevel})
		if err := handler.Handle(t.Context(), record); err != nil {
			r.Fatal(err)
		}
		if string(got) != want.String() {
			r.Errorf("%q; slog writes %q", got, &want)
		}
	})
}

// SPEC I1: lines of calls wait for others to be written with, but no line comes
// before one that was said earlier, and each is written without another to follow.
func TestI1LinesOfCallsAreWrittenInTheirTurn(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	l := newLogging(file, "")
	cfg := defaults()
	l.configure(&cfg, nil)
	written := func() []string {
		var said []string
		for _, line := range linesOf(t, file.Name()) {
			said = append(said, fmt.Sprint(line["msg"], line["n"]))
		}
		return said
	}
	var want []string
	for n := range 100 { // more than go out at once
		l.Info("call", "n", n)
		want = append(want, fmt.Sprint("call", n))
	}
	l.Info("state", "n", 100)
	want = append(want, "state100")
	if got := written(); !slices.Equal(got, want) {
		t.Errorf("written is %q; want %q", got, want)
	}
	l.Info("call", "n", 101)
	want = append(want, "call101")
	eventually(t, "the last call is written", func() bool { return slices.Equal(written(), want) })
	l.Info("call", "n", 102)
	l.out.use(nil)
	if got := written(); len(got) != len(want)+1 {
		t.Errorf("%d lines are written before another file is; want %d", len(got), len(want)+1)
	}
}
