//go:build !race

package schema

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// What is taken for plain, the compiler takes too: for generated schemas, sound ones and others (SPEC G4).
func TestPlainAgreesWithTheCompiler(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	keywords := []string{
		"type", "title", "description", "$comment", "format", "default", "const", "enum", "examples", "deprecated", "readOnly", "writeOnly",
		"uniqueItems", "minimum", "exclusiveMaximum", "minLength", "maxItems", "minProperties", "required", "additionalProperties", "items",
		"properties", "x-mcp-header", "$schema", "$id", "$ref", "$defs", "anyOf", "pattern", "multipleOf", "definitions", "dependencies", "unknown",
	}
	scalar := func() string {
		return pick(`"x"`, `""`, `"string"`, `"date"`, `"object"`, `"strng"`, `0`, `7`, `-1`, `1.5`, `1e2`, `1.0`, `9999999999`, `true`, `false`, `null`,
			`[]`, `["a","b"]`, `["a","a"]`, `["string","null"]`, `["string","string"]`, `[1]`, `{}`, `"#"`, `"("`,
			`"https://json-schema.org/draft/2020-12/schema"`, `"http://json-schema.org/draft-07/schema#"`, `"http://json-schema.org/draft-04/schema#"`, `{"$id":"%"}`)
	}
	var object func(depth int) string
	object = func(depth int) string {
		var members []string
		for range r.IntN(4) {
			key, value := pick(keywords...), scalar()
			switch below := depth > 0 && r.IntN(4) > 0; {
			case key == "properties" && below:
				value = "{" + pick(`"a"`, `""`, `"%zz"`, `"a/b"`, `"~1"`, `"#"`, `"\u0000"`, `"$id"`, `"é "`) + ":" + object(depth-1) + "}"
			case (key == "items" || key == "additionalProperties" || key == "anyOf") && below:
				value = object(depth - 1)
			case r.IntN(3) > 0: // what is likely to be sound
				value = map[string]string{
					"type": pick(`"string"`, `["integer","null"]`), "title": `"t"`, "description": `"d"`, "minimum": "1.5", "minLength": "3",
					"required": `["a"]`, "enum": `["a",1]`, "deprecated": "true", "format": pick(`"date"`, `"regex"`, `"none"`), "properties": "{}",
				}[key]
				if value == "" {
					value = scalar()
				}
			}
			members = append(members, `"`+key+`":`+value)
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	plain, rounds := 0, needs.Rounds(10_000, 40_000)
	for range rounds {
		raw := json.RawMessage(object(3))
		doc, weight, err := read(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if !isPlain(doc) {
			continue
		}
		plain++
		found, err := build(raw, doc, weight)
		if err != nil {
			t.Errorf("%s is taken for plain, but %v", raw, err)
		} else if found.weight != weight {
			t.Errorf("%s weighs %d, and %d when it is compiled", raw, weight, found.weight)
		}
	}
	if plain < rounds/10 {
		t.Errorf("only %d of %d are plain", plain, rounds)
	}
}
