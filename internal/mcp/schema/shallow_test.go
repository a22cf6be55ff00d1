package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// What the shallow check lets pass, the validator lets pass too: for generated
// schemas and arguments (SPEC G4).
func TestShallowAgreesWithTheValidator(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	value := func() string {
		return pick(`"x"`, `""`, `"a\u0022b"`, `1`, `-0`, `1.0`, `1.5`, `1e2`, `9007199254740993`, `true`, `false`, `null`, `{}`, `[]`, `[1]`, `{"a":1}`, strings.Repeat("9", 999))
	}
	passed, rounds := 0, needs.Rounds(2000, 6000)
	for range rounds {
		var properties, required []string
		for _, name := range []string{"a", "b", "c"} {
			if r.IntN(3) > 0 {
				properties = append(properties, fmt.Sprintf("%q:%s", name, pick(
					`{}`, `true`, `{"type":"string"}`, `{"type":"integer","description":"d"}`, `{"type":"number"}`,
					`{"type":"boolean","default":true}`, `{"type":["string","null"]}`, `{"type":"null"}`, `{"type":"object"}`, `{"type":"array"}`)))
			}
			if r.IntN(4) == 0 {
				required = append(required, fmt.Sprintf("%q", name))
			}
		}
		text := fmt.Sprintf(`{"type":"object","properties":{%s},"required":[%s]%s}`, strings.Join(properties, ","), strings.Join(required, ","),
			pick("", `,"additionalProperties":false`, `,"additionalProperties":true`))
		s, err := CompileInput(json.RawMessage(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if s.shallow == nil {
			t.Fatalf("%s is not taken for shallow", text)
		}
		var members []string
		for _, name := range []string{"a", "b", "c", "d", "\\u0061"} {
			if r.IntN(3) == 0 {
				members = append(members, `"`+name+`": `+value())
			}
		}
		args := []byte("{" + strings.Join(members, ", ") + "}")
		if !s.shallow.fits(args) {
			continue
		}
		passed++
		if misfits, _, _ := s.misfits(t.Context(), args); misfits != "" {
			t.Errorf("%s passes for %s, but %s", args, text, misfits)
		}
	}
	if passed < rounds/20 {
		t.Errorf("only %d of %d pass", passed, rounds)
	}
}

// A schema that asks for more is not shallow.
func TestNotShallow(t *testing.T) {
	for _, text := range []string{
		`{"type":"object","properties":{"a":{"type":"string","maxLength":3}}}`,
		`{"type":"object","properties":{"a":{"enum":["x"]}}}`,
		`{"type":"object","properties":{"a":{"type":"string","format":"date"}}}`,
		`{"type":"object","properties":{"a":false}}`,
		`{"type":"object","minProperties":1}`,
		`{"type":"object","additionalProperties":{"type":"string"}}`,
		`{"type":"object","anyOf":[{"required":["a"]}]}`,
		`{"type":"object","properties":{"a":{"$ref":"#"}}}`,
	} {
		s, err := CompileInput(json.RawMessage(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if s.shallow != nil {
			t.Errorf("%s is taken for shallow", text)
		}
	}
}

// What a schema asks for is compiled once more only when arguments do not show at
// once that they fit, and is kept then.
func TestShallowIsCompiledWhenItMatters(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(t.Context(), json.RawMessage(`{"n":1}`)); err != nil || s.source.kept.Load() != nil {
		t.Errorf("what fits gave %v, and was compiled", err)
	}
	var first *keptSchema
	for range 2 {
		if err := s.Validate(t.Context(), json.RawMessage(`{"n":"x"}`)); err == nil || !strings.Contains(err.Error(), "n: ") {
			t.Errorf("what does not fit gave %v", err)
		}
		h := s.source.kept.Load()
		if h == nil || first != nil && h != first {
			t.Error("it is compiled again and again")
		}
		first = h
	}
}
