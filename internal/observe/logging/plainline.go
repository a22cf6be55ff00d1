package logging

import (
	"log/slog"
	"math"
	"strconv"
	"time"
)

// appendPlain appends a record as slog's JSON handler and lowerLevel write it, if it has only numbers, truth values and plain text, as
// the line of a call has: the handler takes more than twice as long. It reports false for any other.
func appendPlain(line []byte, r slog.Record) ([]byte, bool) {
	if r.Level != slog.LevelInfo || !isPlain(r.Message) || r.Time.IsZero() || r.Time.Year() > 9999 {
		return line, false
	}
	line = append(line, `{"time":"`...)
	line = r.Time.AppendFormat(line, time.RFC3339Nano)
	line = append(line, `","level":"info","msg":"`...)
	line = append(append(line, r.Message...), '"')
	plain := true
	r.Attrs(func(a slog.Attr) bool {
		line = append(append(append(line, `,"`...), a.Key...), `":`...)
		line, plain = appendPlainValue(line, a.Value)
		plain = plain && a.Key != "" && isPlain(a.Key)
		return plain
	})
	return append(line, "}\n"...), plain
}

func appendPlainValue(line []byte, v slog.Value) ([]byte, bool) {
	switch v.Kind() {
	case slog.KindString:
		text := v.String()
		return append(append(append(line, '"'), text...), '"'), isPlain(text)
	case slog.KindInt64:
		return strconv.AppendInt(line, v.Int64(), 10), true
	case slog.KindBool:
		return strconv.AppendBool(line, v.Bool()), true
	case slog.KindFloat64:
		const least, most = 1e-6, 1e21 // encoding/json writes others with an exponent
		f := v.Float64()
		size := math.Abs(f)
		return strconv.AppendFloat(line, f, 'f', -1, 64), f == 0 || size >= least && size < most
	default:
		return line, false
	}
}

// isPlain reports whether a text is the same in JSON.
func isPlain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
