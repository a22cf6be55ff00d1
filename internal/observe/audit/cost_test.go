package audit

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

func someCall() *Call {
	return &Call{
		Caller: "anonymous", Tool: "capsule__echo", Target: "capsule", Decision: Decision{Verdict: Allow, Class: "read"},
		Outcome: OK, Took: 1234567 * time.Nanosecond, Ended: time.Date(2026, 11, 26, 8, 7, 28, 719_140_309, time.UTC), ID: "OXOYBVM3MTTDJC5ST6TBQDMVD5", Trace: "0af7651916cd43dd8448eb211c80319c",
		Args: []byte(`{"size":64,"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`),
	}
}

// What one line costs: to make it, and to append it to the chain (SPEC-TOOLS 8.8).
func BenchmarkT88Line(b *testing.B) {
	c, in := someCall(), &rawjson.Canonicalizer{}
	b.Run("make", func(b *testing.B) {
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			out = c.appendTo(out[:0], false, in)
		}
	})
	b.Run("append", func(b *testing.B) {
		l := newLog(Options{Log: slog.New(slog.DiscardHandler)})
		body := c.appendTo(nil, false, in)
		b.ReportAllocs()
		for b.Loop() {
			l.pending = l.pending[:0]
			l.add(body)
		}
	})
}

// SPEC-TOOLS 8.8: durations and texts are written as encoding/json writes them.
func TestT88NumbersAndTexts(t *testing.T) {
	for _, us := range []int64{0, 1, 10, 100, 999, 1000, 1001, 1010, 1100, 1234567, 60_000_000, 123_456_789_012, -1, -1500} {
		want := strconv.FormatFloat(float64(us)/1000, 'f', -1, 64)
		if got := string(appendMillis(nil, us)); got != want {
			t.Errorf("%d µs: %s, want %s", us, got, want)
		}
	}
	for b := range 256 {
		text := "a" + string([]byte{byte(b)}) + "b"
		want, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := appendText(nil, text); !bytes.Equal(got, want) {
			t.Errorf("byte %d: %s, want %s", b, got, want)
		}
	}
}
