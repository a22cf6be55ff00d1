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
)

// numbered are different schemas with a pattern, each of which takes as much.
func numbered(n int, pattern string) []json.RawMessage {
	all := make([]json.RawMessage, n)
	for i := range all {
		all[i] = json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"p%d":{"type":"string","pattern":%q}}}`, i, pattern))
	}
	return all
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
