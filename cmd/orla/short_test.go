package main

import (
	"testing"
	"time"
)

func TestShortNumbers(t *testing.T) {
	const day = 24 * time.Hour
	for _, c := range []struct{ got, want string }{
		{shortAge(-time.Second), "0s"},
		{shortAge(59 * time.Second), "59s"},
		{shortAge(61 * time.Second), "1m1s"},
		{shortAge(11*time.Minute + 5*time.Second), "11m"},
		{shortAge(90 * time.Minute), "1h30m"},
		{shortAge(2 * day), "2d"},
		{shortAge(3*day + 4*time.Hour), "3d4h"},
		{shortAge(400 * day), "400d"},
		{shortTook(0), "-"},
		{shortTook(0.04), "0.0ms"},
		{shortTook(9.94), "9.9ms"},
		{shortTook(250), "250ms"},
		{shortTook(1500), "1.5s"},
		{shortTook(90_000), "1m30s"},
		{shortCount(0), "0"},
		{shortCount(99_999), "99999"},
		{shortCount(123_456), "123k"},
		{shortCount(45_000_000), "45M"},
		{shortSize(0), "-"},
		{shortSize(900), "900B"},
		{shortSize(9_500_000), "9.1M"},
		{shortSize(64 << 20), "64M"},
		{shortSize(1000 << 20), "1.0G"},
		{shortCPU(0), "0.0s"},
		{shortCPU(1.25), "1.2s"},
		{shortCPU(125), "2m5s"},
	} {
		if c.got != c.want {
			t.Errorf("%s; want %s", c.got, c.want)
		}
	}
}
