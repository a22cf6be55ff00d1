package terminal

import (
	"fmt"
	"strconv"
	"time"
)

// How much, in five characters or little more: a table has no room for digits
// that nobody reads.

// ShortAge is how long something has been so.
func ShortAge(d time.Duration) string {
	const day = 24 * time.Hour
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "m", time.Second, "s")
	case d < day:
		return twoUnits(d, time.Hour, "h", time.Minute, "m")
	case d < 100*day:
		return twoUnits(d, day, "d", time.Hour, "h")
	}
	return fmt.Sprintf("%dd", d/day)
}

// twoUnits writes d in a unit and a smaller one, and the smaller one only where
// it says something.
func twoUnits(d, unit time.Duration, name string, less time.Duration, lessName string) string {
	const large = 10 // of the unit: nobody needs the rest
	whole, rest := d/unit, d%unit/less
	if rest == 0 || whole >= large {
		return fmt.Sprintf("%d%s", whole, name)
	}
	return fmt.Sprintf("%d%s%d%s", whole, name, rest, lessName)
}

// ShortTook is how long a call took.
func ShortTook(ms float64) string {
	switch {
	case ms <= 0:
		return "-"
	case ms < 9.95:
		return fmt.Sprintf("%.1fms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0fms", ms)
	case ms < 10_000:
		return fmt.Sprintf("%.1fs", ms/1000)
	}
	return ShortAge(time.Duration(ms) * time.Millisecond)
}

// ShortCount is how often something was.
func ShortCount(n int64) string {
	switch {
	case n < 100_000:
		return strconv.FormatInt(n, 10)
	case n < 10_000_000:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprintf("%dM", n/1_000_000)
}

// ShortSize is how many bytes.
func ShortSize(n int64) string {
	const units = "KMGTPE"
	switch {
	case n <= 0:
		return "-"
	case n < 1<<10:
		return fmt.Sprintf("%dB", n)
	}
	size, unit := float64(n)/(1<<10), 0
	for size >= 1000 && unit < len(units)-1 {
		size, unit = size/(1<<10), unit+1
	}
	if size < 10 {
		return fmt.Sprintf("%.1f%c", size, units[unit])
	}
	return fmt.Sprintf("%.0f%c", size, units[unit])
}

// ShortCPU is how much processor time.
func ShortCPU(seconds float64) string {
	const minute = 60
	switch {
	case seconds < minute:
		return fmt.Sprintf("%.1fs", seconds)
	}
	return ShortAge(time.Duration(seconds * float64(time.Second)))
}

// Moment is a time, and how long ago that is; "" for none.
func Moment(at, now time.Time) string {
	if at.IsZero() {
		return ""
	}
	return at.Local().Format(time.DateTime) + ", " + ShortAge(now.Sub(at)) + " ago"
}
