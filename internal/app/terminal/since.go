package terminal

import (
	"fmt"
	"strconv"
	"strings"
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
	if count, isDays := strings.CutSuffix(strings.TrimPrefix(text, "-"), "d"); isDays {
		if days, err := strconv.ParseUint(count, 10, 16); err == nil {
			return now.AddDate(0, 0, -int(days)), nil
		}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("--since %s is not a time; write 10m, 2d, 2026-01-02T15:04:05Z or 2026-01-02 15:04", text)
}
