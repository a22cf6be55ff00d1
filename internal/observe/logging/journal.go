package logging

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/orla-project/orla/internal/app/systemd"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// fieldPrefix begins the names of Orla's journal fields.
const fieldPrefix = "ORLA_"

// priorityOf returns the syslog priority of a level.
func priorityOf(level slog.Level) int {
	switch {
	case level >= LevelFatal:
		return 2
	case level >= slog.LevelError:
		return 3
	case level >= slog.LevelWarn:
		return 4
	case level >= slog.LevelInfo:
		return 6
	}
	return 7
}

// appendEntry appends a record as a journal entry: the message is a line for people, and each
// attribute is a field with its exact value. given are the attributes of the logger; group is the
// group of the record's own.
func appendEntry(entry []byte, r slog.Record, given []slog.Attr, group string) []byte {
	entry = systemd.AppendField(entry, "SYSLOG_IDENTIFIER", "orla")
	entry = systemd.AppendField(entry, "PRIORITY", strconv.Itoa(priorityOf(r.Level)))
	entry = systemd.AppendField(entry, fieldPrefix+slog.TimeKey, r.Time.UTC().Format(time.RFC3339Nano))
	entry = systemd.AppendField(entry, fieldPrefix+slog.MessageKey, r.Message)
	var message strings.Builder
	message.WriteString(r.Message)
	each := func(key, value string) {
		entry = systemd.AppendField(entry, fieldPrefix+key, value)
		message.WriteString(" " + key + "=" + readable(value))
	}
	for _, a := range given {
		flatten("", a, each)
	}
	r.Attrs(func(a slog.Attr) bool {
		flatten(group, a, each)
		return true
	})
	return systemd.AppendField(entry, "MESSAGE", message.String())
}

// flatten calls each for the values in an attribute. Keys include those of their groups.
func flatten(group string, a slog.Attr, each func(key, value string)) {
	value := a.Value.Resolve()
	switch {
	case value.Kind() != slog.KindGroup && a.Key != "":
		each(group+a.Key, textOf(value))
	case value.Kind() == slog.KindGroup:
		if a.Key != "" {
			group += a.Key + "."
		}
		for _, inner := range value.Group() {
			flatten(group, inner, each)
		}
	}
}

// textOf returns a value as in the JSON log, but strings without quotes.
func textOf(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return err.Error()
		}
		if text, err := rawjson.Encode(v.Any()); err == nil {
			return strings.Trim(string(text), `"`)
		}
		return fmt.Sprint(v.Any())
	default:
		return v.String()
	}
}

// readable quotes a value that contains blanks or other separators, or characters that a terminal
// would interpret.
func readable(value string) string {
	odd := func(c rune) bool {
		return c == '"' || c == '=' || c == ' ' || c == unicode.ReplacementChar || !unicode.IsPrint(c)
	}
	if value != "" && strings.IndexFunc(value, odd) < 0 {
		return value
	}
	return strconv.Quote(value)
}
