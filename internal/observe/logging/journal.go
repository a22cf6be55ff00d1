package logging

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/orla-project/orla/internal/app/systemd"
)

// fieldPrefix begins the names of the journal's fields that are Orla's.
const fieldPrefix = "ORLA_"

// priorityOf is a level as syslog and the journal count it.
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

// appendEntry appends a record as an entry of the journal: its message is a line
// for people, and each attribute a field of its own, as it is. given are the
// attributes of its logger, and group is where its own belong.
func appendEntry(entry []byte, r slog.Record, given []slog.Attr, group string) []byte {
	entry = systemd.AppendField(entry, "SYSLOG_IDENTIFIER", "orla")
	entry = systemd.AppendField(entry, "PRIORITY", strconv.Itoa(priorityOf(r.Level)))
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

// flatten gives the values of an attribute, by their keys with those of their groups.
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

// textOf is a value as the JSON log has it, a text without its quotes.
func textOf(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339Nano)
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return err.Error()
		}
		var text strings.Builder
		e := json.NewEncoder(&text)
		e.SetEscapeHTML(false)
		if e.Encode(v.Any()) == nil {
			return strings.Trim(text.String(), "\"\n")
		}
		return fmt.Sprint(v.Any())
	default:
		return v.String()
	}
}

// readable quotes a value that would not be told from what stands around it, or
// that a terminal would obey.
func readable(value string) string {
	odd := func(c rune) bool {
		return c == '"' || c == '=' || c == ' ' || c == unicode.ReplacementChar || !unicode.IsPrint(c)
	}
	if value != "" && strings.IndexFunc(value, odd) < 0 {
		return value
	}
	return strconv.Quote(value)
}
