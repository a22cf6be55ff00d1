package terminal

import (
	"fmt"
	"time"
)

// ParseSince reads the value of a flag --since: a time, or how long ago it was. "" means the zero time.
func ParseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil {
		return now.Add(-ago.Abs()), nil // -10m is what journalctl takes
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %s is not a time; write 10m, 2026-01-02T15:04:05Z or 2026-01-02 15:04", text)
}
