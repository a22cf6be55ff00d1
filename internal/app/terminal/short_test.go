package terminal

import (
	"testing"
	"time"
)

func TestShortNumbers(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct{ got, want string }{
		{ShortAge(-time.Second), "0s"},
		{ShortAge(59 * time.Second), "59s"},
		{ShortAge(61 * time.Second), "1m1s"},
		{ShortAge(11*time.Minute + 5*time.Second), "11m"},
		{ShortAge(90 * time.Minute), "1h30m"},
		{ShortAge(2 * day), "2d"},
		{ShortAge(3*day + 4*time.Hour), "3d4h"},
		{ShortAge(400 * day), "400d"},
		{ShortTook(0), "-"},
		{ShortTook(0.04), "0.0ms"},
		{ShortTook(9.94), "9.9ms"},
		{ShortTook(250), "250ms"},
		{ShortTook(1500), "1.5s"},
		{ShortTook(90_000), "1m30s"},
		{ShortCount(0), "0"},
		{ShortCount(99_999), "99999"},
		{ShortCount(123_456), "123k"},
		{ShortCount(45_000_000), "45M"},
		{ShortSize(0), "-"},
		{ShortSize(900), "900B"},
		{ShortSize(9_500_000), "9.1M"},
		{ShortSize(64 << 20), "64M"},
		{ShortSize(1000 << 20), "1.0G"},
		{ShortCPU(0), "0.0s"},
		{ShortCPU(1.25), "1.2s"},
		{ShortCPU(125), "2m5s"},
	} {
		if c.got != c.want {
			t.Errorf("%s; want %s", c.got, c.want)
		}
	}
}
