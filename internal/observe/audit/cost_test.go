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
		Outcome: OK, Took: 1234567 * time.Nanosecond, Ended: 719_140_309, ID: "OXOYBVM3MTTDJC5ST6TBQDMVD5", Trace: "0af7651916cd43dd8448eb211c80319c",
		Args: []byte(`{"size":64,"text":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`),
	}
}

// someClock is one that began at a full second.
func someClock() clock {
	return clock{began: time.Date(2026, 11, 26, 8, 7, 28, 0, time.UTC).UnixNano()}
}

// What one line costs: to make it, and to append it to the chain (SPEC-TOOLS 8.8).
func BenchmarkT88Line(b *testing.B) {
	c, in := someCall(), &rawjson.Canonicalizer{}
	b.Run("make", func(b *testing.B) {
		m := maker{clock: someClock()}
		var out []byte
		b.ReportAllocs()
		for b.Loop() {
			out = m.append(out[:0], c)
		}
	})
	b.Run("append", func(b *testing.B) {
		l := newLog(Options{Log: slog.New(slog.DiscardHandler)})
		body := c.appendTo(nil, time.Now(), false, in)
		b.ReportAllocs()
		for b.Loop() {
			l.pending = l.pending[:0]
			l.add(body)
		}
	})
}

// A line that has waited is that of its call, whatever came before it (SPEC-TOOLS 8.8).
func TestT88ALineThatHasWaitedIsThatOfItsCall(t *testing.T) {
	var calls []*Call
	for _, change := range []func(c *Call){
		func(*Call) {},
		func(*Call) {},
		func(c *Call) { c.Tool, c.Target = "capsule__echoc", "apsule" }, // the same bytes, divided elsewhere
		func(c *Call) { c.Decision, c.Target, c.Trace = Decision{Verdict: None}, "", "" },
		func(c *Call) {
			c.Class, c.Rule, c.Approval, c.Decider, c.Outcome = "x", "\"", "a\u2028", "<b>", "timeout"
		},
		func(c *Call) { c.Agent, c.Task, c.Took = "agent", "task", 0 },
		func(c *Call) { *c = Call{} },
		func(c *Call) { c.Args, c.Input = nil, []byte(`{"b":1, "a":2}`) },
		func(c *Call) { c.Args, c.Input = []byte(`{"b":"\ud800"}`), []byte(`null`) },
		func(c *Call) { c.Ended++ },
		func(c *Call) { c.Ended = 999_999_000 },
		func(c *Call) { c.Ended = time.Second },
		func(c *Call) { c.Ended = -1 },
		func(c *Call) { c.Ended = -60*365*24*time.Hour + 1 },
		func(*Call) {},
	} {
		c := someCall()
		change(c)
		calls = append(calls, c)
	}
	m := maker{clock: someClock()}
	for i, c := range calls {
		want := c.appendTo(nil, time.Unix(0, m.began).Add(c.Ended), false, &rawjson.Canonicalizer{})
		if got := m.append(nil, c); !bytes.Equal(got, want) {
			t.Errorf("call %d:\n%s\nwant\n%s", i, got, want)
		}
	}
}

// The digits of a hash are those of encoding/hex (SPEC-TOOLS 8.8).
func TestT88DigitsOfAHash(t *testing.T) {
	for b := range 256 {
		h := hash{byte(b), 31: byte(255 - b)}
		if got := string(appendHex(nil, h)); got != h.String() {
			t.Errorf("%s, want %s", got, h)
		}
	}
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
