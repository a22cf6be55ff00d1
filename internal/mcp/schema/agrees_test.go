//go:build !race

package schema

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC G4: for schemas of each draft and values at random, the evaluation says what the
// library says, with and without a report.
func TestG4TheEvaluationAgreesWithTheLibrary(t *testing.T) {
	const seed = 7
	rounds := needs.Rounds(500, 2000)
	r := rand.New(rand.NewPCG(seed, seed))
	compared, fitting := 0, 0
	for range rounds {
		draft := []string{"draft-06", "draft-07", "2019-09", "2020-12"}[r.IntN(4)]
		uri := "http://json-schema.org/" + draft + "/schema#"
		if strings.HasPrefix(draft, "20") {
			uri = "https://json-schema.org/draft/" + draft + "/schema"
		}
		whole := map[string]any{
			"$schema": uri, "allOf": []any{randomSchema(r, draft, 4)},
			"$defs": map[string]any{
				"d": map[string]any{"properties": map[string]any{"a": map[string]any{"$ref": "#/$defs/e"}}, "items": map[string]any{"$ref": "#/$defs/d"}},
				"e": map[string]any{"anyOf": []any{map[string]any{"type": "string"}, map[string]any{"properties": map[string]any{"b": map[string]any{"$ref": "#/$defs/d"}}}}},
			},
		}
		raw, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		c, err := compiledOf(raw)
		if err != nil {
			continue // it combines too much, or a pattern of the library's own is odd
		}
		for range 12 {
			raws, err := json.Marshal(randomValue(r, 4))
			if err != nil {
				t.Fatal(err)
			}
			value, err := decode(raws)
			if err != nil {
				t.Fatal(err)
			}
			want := c.root.Validate(value) == nil
			silent, err := c.check(t.Context(), value, len(raws), nil)
			told, err2 := c.check(t.Context(), value, len(raws), &report{root: value, most: mostCollected})
			if err != nil || err2 != nil || silent != want || told != want {
				t.Fatalf("%s\nfor %s: %v, %v (%v, %v), and the library says %v: %v", raws, raw, silent, told, err, err2, want, c.root.Validate(value))
			}
			r := report{root: value, most: mostCollected}
			if _, _ = c.check(t.Context(), value, len(raws), &r); !want && len(r.faults) == 0 {
				t.Fatalf("%s\nfor %s does not fit, and no misfit is named", raws, raw)
			}
			compared++
			if want {
				fitting++
			}
		}
	}
	if compared < rounds*10/3 || fitting < compared/10 || fitting > compared*9/10 {
		t.Errorf("%d compared, of which %d fit: the generator has lost its use", compared, fitting)
	}
}
