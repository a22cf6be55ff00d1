package yamldoc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a duration, written as 30s, 1m30s, or a plain number of seconds (SPEC H1). It is never
// negative.
type Duration time.Duration

// UnmarshalText parses a duration from a file, a flag or a variable.
func (d *Duration) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	span, err := time.ParseDuration(s)
	if seconds, ok := plainNumber(s); ok {
		ns := seconds * float64(time.Second)
		if math.Abs(ns) >= math.MaxInt64 {
			return fmt.Errorf("is too long a time: %s", shorten(s))
		}
		span, err = time.Duration(math.Round(ns)), nil
	}
	if err != nil {
		return fmt.Errorf("wants a duration such as 30s or 1m30s, or a number of seconds, got %q", shorten(s))
	}
	if span < 0 {
		return fmt.Errorf("must not be negative, got %s", shorten(s))
	}
	*d = Duration(span)
	return nil
}

// plainNumber parses a finite decimal number; ParseFloat alone accepts "inf" and hexadecimal as
// well.
func plainNumber(s string) (float64, bool) {
	if s == "" || strings.Trim(s, "0123456789.eE+-") != "" {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}

// UnmarshalJSON parses a duration from a string or a number of seconds.
func (d *Duration) UnmarshalJSON(raw []byte) error {
	s, err := text(raw)
	if err != nil {
		return fmt.Errorf("wants a duration such as 30s or 1m30s, or a number of seconds, got %s", shorten(string(raw)))
	}
	return d.UnmarshalText([]byte(s))
}

// String returns the shortest form that UnmarshalText accepts.
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText returns String, also for JSON.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// JSONSchema describes the values that UnmarshalJSON accepts.
func (Duration) JSONSchema() string {
	return `{"anyOf":[{"type":"number","minimum":0},{"type":"string","pattern":"^\\s*\\+?([0-9.]+(ns|us|µs|μs|ms|s|m|h))+\\s*$|^\\s*\\+?[0-9.]+([eE][+-]?[0-9]+)?\\s*$"}]}`
}
