package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/needs"
)

// inUse is how many bytes of the heap are used.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// numbered are different schemas with a pattern, each of which takes as much.
func numbered(n int, pattern string) []json.RawMessage {
	all := make([]json.RawMessage, n)
	for i := range all {
		all[i] = json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"p%d":{"type":"string","pattern":%q}}}`, i, pattern))
	}
	return all
}

// SPEC S2: however many schemas there are, and however much a short one takes, those that
// are compiled are few; and each is checked against, whether it is kept or not.
func TestS2CompiledSchemasAreBounded(t *testing.T) {
	needs.Time(t, "compiles thousands of schemas")
	for name, c := range map[string]struct {
		pattern string
		n       int
	}{
		"small ones": {"^[a-z]{100}$", 5000},
		"large ones": {`^(\p{L}{300})$`, 60},
	} {
		t.Run(name, func(t *testing.T) {
			before := inUse()
			raw := numbered(c.n, c.pattern)
			all := make([]*Schema, c.n)
			for i := range all {
				var err error
				if all[i], err = CompileInput(raw[i]); err != nil {
					t.Fatal(err)
				}
			}
			check := func(when string) {
				t.Helper()
				if took := inUse() - before; took > 2*maxKept {
					t.Errorf("%d schemas take %d MiB %s", c.n, took>>20, when)
				}
			}
			check("when they are known")
			for round := range 2 {
				for i, s := range all {
					if err := s.Validate(t.Context(), json.RawMessage(fmt.Sprintf(`{"p%d":"1"}`, i))); err == nil || !strings.Contains(err.Error(), fmt.Sprint("p", i)) {
						t.Fatalf("schema %d, the %d. time: %v", i, round, err)
					}
				}
				check("when each was used")
			}
			runtime.KeepAlive(all)
		})
	}
}

// What is used goes on being kept, whatever else comes.
func TestWhatIsUsedIsKept(t *testing.T) {
	c := &cache{most: 1000}
	of := func() (*source, *compiled) { return &source{}, &compiled{weight: 300} }
	used, found := of()
	c.put(used, found, true)
	for range 20 {
		other, found := of()
		c.put(other, found, true)
		if h := used.kept.Load(); h == nil || h.compiled.weight != 300 {
			t.Fatal("what was used is not kept")
		} else {
			h.used.Store(true)
		}
		if c.weight > c.most || c.order.Len() > 3 {
			t.Fatalf("%d bytes of %d schemas are kept", c.weight, c.order.Len())
		}
	}
	unused, found := of()
	if c.put(unused, found, false); unused.kept.Load() != nil {
		t.Error("one that nobody uses has taken the place of another")
	}
	giant := &source{}
	if c.put(giant, &compiled{weight: 2000}, true); giant.kept.Load() != nil || c.weight > c.most {
		t.Errorf("one that is larger than all: %d bytes are kept", c.weight)
	}
}

// SPEC S2: a pattern is refused before it is compiled, when a few characters would
// be millions of instructions.
func TestS2GiantPatternsAreNotCompiled(t *testing.T) {
	for _, pattern := range []string{`((a{10}){10}){9}b{1000}c{1000}`, `(abcdefghij){1000}`} { // what is not giant is
		if _, err := CompileInput(numbered(1, pattern)[0]); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
	for _, pattern := range []string{`(` + strings.Repeat("a", 100) + `){1000}`, `\p{L}{1000}`, strings.Repeat(`[^\p{L}]{900}`, 20)} {
		raw := numbered(1, pattern)[0]
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := CompileInput(raw)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%.20s…: %v", pattern, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
			t.Errorf("%.20s…: it took %d bytes to refuse", pattern, took)
		}
	}
}

// A call that ends while others compile does not wait for them.
func TestACallDoesNotWaitToCompile(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	shared := building
	building = turns.NewQueue(shared.Limit(), 1) // nobody has waited for a place of it
	defer func() { building = shared }()
	other := turns.Owner{Session: "other"}
	for range building.Limit() {
		if err := building.Take(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		defer building.Give(other)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	cancel(over)
	if err := s.Validate(ctx, json.RawMessage(`{"n":"x"}`)); !errors.Is(err, over) {
		t.Errorf("%v; want it to end", err)
	}
}
