package terminal

import (
	"testing"
	"time"
)

// SPEC J3: --since takes days, which Go's durations do not have, and says what it takes.
func TestJ3SinceTakesDays(t *testing.T) {
	now := time.Date(2026, 3, 2, 15, 4, 0, 0, time.Local)
	for text, want := range map[string]time.Time{
		"": {}, "2d": now.AddDate(0, 0, -2), "-2d": now.AddDate(0, 0, -2), "10m": now.Add(-10 * time.Minute), "-10m": now.Add(-10 * time.Minute),
		"2026-03-01": time.Date(2026, 3, 1, 0, 0, 0, 0, time.Local), "2026-03-01 15:04": now.AddDate(0, 0, -1),
	} {
		if got, err := ParseSince(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"d", "--2d", "1.5d", "2 d", "99999999d", "yesterday"} {
		if got, err := ParseSince(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
