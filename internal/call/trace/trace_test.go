package trace_test

import (
	"context"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/trace"
)

const good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		parent string
		ok     bool
	}{
		"version 00":                      {good, true},
		"not sampled":                     {strings.TrimSuffix(good, "1") + "0", true},
		"a later version":                 {"01" + good[2:], true},
		"a later version that says more":  {"cc" + good[2:] + "-what.the-future-will-be-like", true},
		"nothing":                         {"", false},
		"version 00 with more":            {good + "-more", false},
		"a later version, run together":   {"01" + good[2:] + "more", false},
		"version ff":                      {"ff" + good[2:], false},
		"capitals":                        {strings.ToUpper(good), false},
		"too short":                       {good[:54], false},
		"no trace":                        {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", false},
		"no span":                         {"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", false},
		"other separators":                {strings.ReplaceAll(good, "-", "_"), false},
		"a line break behind its flags":   {"01" + good[2:] + "-a\nb", false},
		"a quote behind its flags":        {"01" + good[2:] + `-a"b`, false},
		"a NUL in it":                     {good[:10] + "\x00" + good[11:], false},
		"longer than anybody has need of": {"01" + good[2:] + "-" + strings.Repeat("x", 300), false},
	} {
		got, ok := trace.Parse(c.parent, "")
		if ok != c.ok || ok && got.Parent() != c.parent || ok == got.IsZero() {
			t.Errorf("%s: Parse(%q) = %q, %v", name, c.parent, got.Parent(), ok)
		}
	}
}

func TestAStateThatIsUnsafeIsLeftOut(t *testing.T) {
	for state, want := range map[string]string{
		"rojo=00f067aa0ba902b7,congo=t61rcWkgMzE": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
		"a=b\x00": "", "a=b\nc=d": "", "a=ä": "", strings.Repeat("x", 5000): "",
	} {
		c, ok := trace.Parse(good, state)
		if !ok || c.State() != want {
			t.Errorf("state %.20q gave %q, %v", state, c.State(), ok)
		}
	}
}

func TestAContextTravels(t *testing.T) {
	c, _ := trace.Parse(good, "a=b")
	if got := trace.From(trace.With(t.Context(), c)); got != c || got.TraceID() != "4bf92f3577b34da6a3ce929d0e0e4736" || got.SpanID() != "00f067aa0ba902b7" {
		t.Errorf("got %+v", got)
	}
	if got := trace.From(t.Context()); !got.IsZero() || got.TraceID() != "" || got.SpanID() != "" {
		t.Errorf("nothing gave %+v", got)
	}
	if ctx := t.Context(); trace.With(ctx, trace.Context{}) != ctx {
		t.Error("no trace makes another context")
	}
}

func TestWorkHasAPlaceOfItsOwn(t *testing.T) {
	up, _ := trace.Parse(good, "")
	down := trace.Of([16]byte{1}, [8]byte{2}, 0, "")
	ended := 0
	ctx := trace.WithWork(t.Context(), up, func(ctx context.Context) (context.Context, func()) {
		return trace.With(ctx, down), func() { ended++ }
	})
	if got := trace.From(ctx); got != up {
		t.Errorf("before it, the place is %q", got.Parent())
	}
	ctx, end := trace.Begin(ctx)
	if got := trace.From(ctx); got != down {
		t.Errorf("in it, the place is %q", got.Parent())
	}
	if end(); ended != 1 {
		t.Errorf("it ended %d times", ended)
	}
	same, end := trace.Begin(t.Context())
	if end(); same != t.Context() {
		t.Error("without anybody who looks, work makes another context")
	}
}

func TestOfASpan(t *testing.T) {
	c := trace.Of([16]byte{0x4b, 15: 0x36}, [8]byte{0, 0xf0, 7: 0xb7}, 1, "a=b")
	if want := "00-4b000000000000000000000000000036-00f00000000000b7-01"; c.Parent() != want || c.State() != "a=b" {
		t.Errorf("got %q, want %q", c.Parent(), want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good, "a=b")
	f.Add("cc"+good[2:]+"-x", "\x00")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c, ok := trace.Parse(parent, state)
		if !ok {
			return
		}
		if again, ok := trace.Parse(c.Parent(), c.State()); !ok || again != c {
			t.Errorf("%q does not parse again", c.Parent())
		}
		if strings.ContainsAny(c.Parent()+c.State(), "\x00\n\r") || strings.ContainsAny(c.Parent(), `"\`) {
			t.Errorf("%q, %q is not safe to pass on", c.Parent(), c.State())
		}
	})
}

// SPEC L1: a context with an id finds the trace context of the call without those before it, and what comes after counts.
func TestL1AnIDKnowsTheTrace(t *testing.T) {
	before := &counting{Context: t.Context()}
	ctx := callid.With(before, "x")
	looked := before.looked
	if got := trace.From(ctx); !got.IsZero() || before.looked != looked {
		t.Errorf("got %+v, and looked further %d times", got, before.looked-looked)
	}
	one, ok := trace.Parse(good, "")
	if !ok {
		t.Fatal("it is not parsed")
	}
	if got := trace.From(trace.With(ctx, one)); got != one {
		t.Errorf("got %+v from a trace context after the id", got)
	}
	if got := trace.From(callid.With(trace.With(ctx, one), "y")); got != one {
		t.Errorf("got %+v from a trace context before the id", got)
	}
}

// counting counts how often something is looked up in it.
type counting struct {
	context.Context
	looked int
}

func (c *counting) Value(key any) any {
	c.looked++
	return c.Context.Value(key)
}
