package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// median returns the middle of values, 0 when there are none. It sorts them.
func median[T float64 | time.Duration](values []T) T {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}

// p99 returns what one in a hundred exceeds, 0 when there are none. It sorts them.
func p99(values []time.Duration) time.Duration {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)-1-len(values)/100]
}

// quotient is a divided by b, 0 when b is.
func quotient(a, b time.Duration) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// micros writes a duration in microseconds.
func micros(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/1e3) }

// precise writes a difference of a few microseconds.
func precise(d time.Duration) string { return fmt.Sprintf("%+.1f µs", float64(d)/1e3) }

// millis writes a duration in milliseconds.
func millis(d time.Duration) string { return fmt.Sprintf("%.2f ms", float64(d)/1e6) }

// times writes a ratio.
func times(ratio float64) string { return fmt.Sprintf("%.2f×", ratio) }

// mebibytes writes a size.
func mebibytes(size int64) string { return fmt.Sprintf("%.1f MiB", float64(size)/(1<<20)) }

// kibibytes writes the size of a payload.
func kibibytes(size int) string {
	switch {
	case size >= 1<<20:
		return fmt.Sprintf("%d MiB", size>>20)
	case size >= 1<<10:
		return fmt.Sprintf("%d KiB", size>>10)
	}
	return fmt.Sprintf("%d B", size)
}

// check is one measured value and the most that it may be.
type check struct {
	what      string
	got, most float64
}

// verdict says whether all values keep to their targets, and which do not.
func verdict(checks ...check) string {
	var missed []string
	for _, c := range checks {
		if c.got > c.most {
			missed = append(missed, c.what)
		}
	}
	if len(missed) == 0 {
		return "met"
	}
	return strings.TrimSpace("MISSED " + strings.Join(missed, ", "))
}
