package main

import (
	"bytes"
	"log/slog"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// SPEC I1: what is written without slog's handler is what that would write.
func TestI1SimpleLinesAreAsSlogWritesThem(t *testing.T) {
	simple := 0
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,12}`), rapid.String())
		value := rapid.OneOf(
			rapid.Map(text, slog.StringValue),
			rapid.Map(rapid.Int64(), slog.Int64Value),
			rapid.Map(rapid.Bool(), slog.BoolValue),
			rapid.Map(rapid.Float64(), slog.Float64Value),
			rapid.Map(rapid.Int64Range(-1e9, 1e9), func(n int64) slog.Value { return slog.Float64Value(float64(n) / 1000) }),
			rapid.SampledFrom([]slog.Value{
				{}, slog.DurationValue(time.Second), slog.TimeValue(time.Unix(1, 2)), slog.Float64Value(math.Inf(1)),
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
		simple++
		var want bytes.Buffer
		handler := slog.NewJSONHandler(&want, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: lowerLevel})
		if err := handler.Handle(t.Context(), record); err != nil {
			r.Fatal(err)
		}
		if string(got) != want.String() {
			r.Errorf("%q; slog writes %q", got, &want)
		}
	})
	if simple == 0 {
		t.Error("no record was simple")
	}
}
