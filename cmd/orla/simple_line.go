package main

import (
	"log/slog"
	"math"
	"strconv"
	"time"
)

// simpleLevels are the levels in JSON, as lowerLevel has them.
var simpleLevels = map[slog.Level]string{
	slog.LevelDebug: "debug", slog.LevelInfo: "info", slog.LevelWarn: "warn", slog.LevelError: "error",
}

// appendSimple appends a record as slog's JSON handler writes it, if there is
// nothing in it but numbers, truth values and plain text: such are the lines of
// calls, and the handler takes several times as long. It reports false for any other.
func appendSimple(b []byte, r slog.Record) ([]byte, bool) {
	level, known := simpleLevels[r.Level]
	year := r.Time.Year()
	if !known || !looksPlain(r.Message) || r.Time.IsZero() || year < 0 || year > 9999 {
		return b, false
	}
	b = append(b, `{"time":"`...)
	b = r.Time.AppendFormat(b, time.RFC3339Nano)
	b = append(append(b, `","level":"`...), level...)
	b = append(append(b, `","msg":"`...), r.Message...)
	b = append(b, '"')
	simple := true
	r.Attrs(func(a slog.Attr) bool {
		if simple = a.Key != "" && looksPlain(a.Key); !simple {
			return false
		}
		b = append(append(append(b, `,"`...), a.Key...), `":`...)
		b, simple = appendSimpleValue(b, a.Value)
		return simple
	})
	return append(b, "}\n"...), simple
}

func appendSimpleValue(b []byte, v slog.Value) ([]byte, bool) {
	switch v.Kind() {
	case slog.KindString:
		text := v.String()
		return append(append(append(b, '"'), text...), '"'), looksPlain(text)
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10), true
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool()), true
	case slog.KindFloat64:
		f := v.Float64()
		size := math.Abs(f)
		const least, most = 1e-6, 1e21 // between them encoding/json writes no exponent
		return strconv.AppendFloat(b, f, 'f', -1, 64), f == 0 || size >= least && size < most
	default:
		return b, false
	}
}

// looksPlain reports whether a text is the same in JSON.
func looksPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
