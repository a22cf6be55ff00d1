package logging

import (
	"bytes"
	"log/slog"
	"math"
	"testing"
	"time"
)

// L1: the line of a call is made without slog's handler, and is the same.
func TestL1APlainLineIsThatOfTheHandler(t *testing.T) {
	now := time.Date(2026, 11, 27, 1, 2, 3, 456_000_789, time.FixedZone("", 3600))
	call := []slog.Attr{
		slog.String("tool", "files_read"), slog.Float64("duration_ms", 1.234), slog.Bool("ok", true), slog.String("caller", ""), slog.Int("request_bytes", 16384),
	}
	for name, one := range map[string]struct {
		at    time.Time
		level slog.Level
		msg   string
		attrs []slog.Attr
		plain bool
	}{
		"call":       {now, slog.LevelInfo, "call", call, true},
		"nothing":    {now.UTC(), slog.LevelInfo, "call", nil, true},
		"negative":   {now, slog.LevelInfo, "call", []slog.Attr{slog.Int("n", -7), slog.Float64("f", -0.5), slog.Float64("whole", 3), slog.Float64("zero", 0)}, true},
		"small":      {now, slog.LevelInfo, "call", []slog.Attr{slog.Float64("f", 1e-7)}, false},
		"large":      {now, slog.LevelInfo, "call", []slog.Attr{slog.Float64("f", 1e21)}, false},
		"infinite":   {now, slog.LevelInfo, "call", []slog.Attr{slog.Float64("f", math.Inf(1))}, false},
		"not":        {now, slog.LevelInfo, "call", []slog.Attr{slog.Float64("f", math.NaN())}, false},
		"quote":      {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", `a"b`)}, false},
		"backslash":  {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", `a\b`)}, false},
		"line end":   {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", "a\nb")}, false},
		"delete":     {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", "a\x7fb")}, false},
		"not ASCII":  {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", "ä")}, false},
		"not UTF-8":  {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", "\xff")}, false},
		"key":        {now, slog.LevelInfo, "call", []slog.Attr{slog.Int(`a"b`, 1)}, false},
		"no key":     {now, slog.LevelInfo, "call", []slog.Attr{{}}, false},
		"group":      {now, slog.LevelInfo, "call", []slog.Attr{slog.Group("g", slog.Int("n", 1))}, false},
		"duration":   {now, slog.LevelInfo, "call", []slog.Attr{slog.Duration("d", time.Second)}, false},
		"last":       {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", "\n"), slog.Int("n", 1)}, false},
		"message":    {now, slog.LevelInfo, "a\nb", nil, false},
		"level":      {now, slog.LevelWarn, "call", nil, false},
		"no time":    {time.Time{}, slog.LevelInfo, "call", nil, false},
		"late time":  {now.AddDate(8000, 0, 0), slog.LevelInfo, "call", nil, false},
		"HTML":       {now, slog.LevelInfo, "call", []slog.Attr{slog.String("tool", "<a>&</a>")}, true},
		"whole time": {now.Truncate(time.Second), slog.LevelInfo, "call", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := slog.NewRecord(one.at, one.level, one.msg, 0)
			r.AddAttrs(one.attrs...)
			got, plain := appendPlain(nil, r)
			if plain != one.plain {
				t.Fatalf("plain is %t", plain)
			}
			if !plain {
				return
			}
			var want bytes.Buffer
			if err := slog.NewJSONHandler(&want, nil).Handle(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if line := lowerLevel(want.Bytes(), r.Level); !bytes.Equal(got, line) {
				t.Errorf("line is\n%swant\n%s", got, line)
			}
		})
	}
}
