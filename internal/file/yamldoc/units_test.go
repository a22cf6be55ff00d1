package yamldoc_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

func TestH1Durations(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1m30s": 90 * time.Second, "30": 30 * time.Second, "0.25": 250 * time.Millisecond,
		"0": 0, "1e3": 1000 * time.Second, " 5s ": 5 * time.Second, "1.5h": 90 * time.Minute,
	} {
		var d yamldoc.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || time.Duration(d) != want {
			t.Errorf("%q: got %v, %v; want %v", text, time.Duration(d), err, want)
		}
	}
	for _, text := range []string{"", "abc", "inf", "nan", "-1", "-1s", "0x10", "1e300", "30 s", "1:30", "10000000h"} {
		var d yamldoc.Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken as %v", text, d)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1024": 1024, "8MiB": 8 << 20, "16MB": 16e6, "64 KiB": 64 << 10, "1.5GiB": 3 << 29, "2tib": 2 << 40, "7B": 7, "1e6": 1e6,
	} {
		var z yamldoc.Size
		if err := z.UnmarshalText([]byte(text)); err != nil || int64(z) != want {
			t.Errorf("%q: got %v, %v; want %v", text, int64(z), err, want)
		}
	}
	for _, text := range []string{"", "abc", "8M", "-1", "0.5", "MiB", "1e300", "8388608TiB", "inf", "1__0"} {
		var z yamldoc.Size
		if err := z.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken as %v", text, z)
		}
	}
}

func TestUnitsPrintAsTheyAreRead(t *testing.T) {
	for d, want := range map[time.Duration]string{
		90 * time.Second: "1m30s", time.Minute: "1m", time.Hour: "1h", time.Hour + time.Second: "1h0m1s", 0: "0s", 20 * time.Minute: "20m",
	} {
		if got := yamldoc.Duration(d).String(); got != want {
			t.Errorf("%v prints as %s, want %s", d, got, want)
		}
	}
	for z, want := range map[yamldoc.Size]string{8 << 20: "8MiB", 1000: "1000", 0: "0", 1025: "1025", 1 << 40: "1TiB"} {
		if got := z.String(); got != want {
			t.Errorf("%d prints as %s, want %s", int64(z), got, want)
		}
	}
	raw, err := json.Marshal(struct {
		D yamldoc.Duration
		Z yamldoc.Size
		J yamldoc.JSON
		N yamldoc.JSON
	}{yamldoc.Duration(time.Minute), 1 << 10, yamldoc.JSON(`{"a":1}`), nil})
	if want := `{"D":"1m","Z":"1KiB","J":{"a":1},"N":null}`; err != nil || string(raw) != want {
		t.Errorf("got %s, %v; want %s", raw, err, want)
	}
}

func TestNearestFindsWhatWasMeant(t *testing.T) {
	known := []string{"readOnlyHint", "timeout", "args", "env", "title"}
	for given, want := range map[string]string{
		"read_only_hint": "readOnlyHint", "timeuot": "timeout", "Timeout": "timeout", "arg": "args", "tilte": "title",
		"zebra": "", "x": "", "nev": "env", "": "", "anv": "env", "arm": "",
	} {
		if got := yamldoc.Nearest(given, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", given, got, want)
		}
	}
}
