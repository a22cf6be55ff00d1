package schema

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
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

// describedTool is the schema of the tools that the bench has.
const describedTool = `{"type":"object","properties":{"text":{"type":"string","description":"What to print."},` +
	`"count":{"type":"integer","description":"How often to print it.","minimum":1}}}`

// SPEC L2, S1: the schemas of most tools are checked without the compiler, as there may be ten thousand of them at a start.
func TestL2APlainSchemaIsNotCompiledBeforeItIsNeeded(t *testing.T) {
	s, err := CompileInput(json.RawMessage(describedTool))
	if err != nil {
		t.Fatal(err)
	}
	if s.source.kept.Load() != nil {
		t.Error("the compiled schema is kept before a call needs it")
	}
	got := testing.AllocsPerRun(100, func() { _, _ = compileInput(json.RawMessage(describedTool)) })
	if got > 150 { // the compiler makes some 400
		t.Errorf("%.0f allocations for a plain schema", got)
	}
	if err := s.Validate(t.Context(), json.RawMessage(`{"count":0}`)); err == nil || !strings.Contains(err.Error(), "count") {
		t.Errorf("a count of 0: %v", err)
	}
}

// SPEC S1, S2: what is remembered of plain schemas is bounded, and is what would be made again.
func TestS2FewInputSchemasAreRemembered(t *testing.T) {
	m := &memory{}
	for i := range maxInputs + 10 {
		raw := json.RawMessage(fmt.Sprintf(`{"type":"object","title":"%d"}`, i))
		s, err := compileInput(raw)
		if err != nil {
			t.Fatal(err)
		}
		m.put(sha256.Sum256(raw), s)
		if len(m.known) > maxInputs || m.get(sha256.Sum256(raw)) != s {
			t.Fatalf("%d schemas are remembered", len(m.known))
		}
	}
	if len(m.known) != 10 {
		t.Errorf("%d schemas are remembered, want those since there was no room", len(m.known))
	}
	large := json.RawMessage(`{"type":"object","title":"` + strings.Repeat("x", maxSchema/2) + `"}`)
	s, err := compileInput(large)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		m.put([sha256.Size]byte{byte(i)}, s)
		if m.bytes > maxInputBytes {
			t.Fatalf("%d bytes are remembered", m.bytes)
		}
	}
	first, _ := CompileInput(json.RawMessage(describedTool))
	if again, err := CompileInput(json.RawMessage(describedTool)); err != nil || again != first {
		t.Errorf("the same schema again: %v", err)
	}
	if _, err := CompileInput(json.RawMessage(`{"type":"string"}`)); err == nil {
		t.Error("a schema that is not one of an object is taken")
	}
}

func BenchmarkCompileInput(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := compileInput(json.RawMessage(describedTool)); err != nil {
			b.Fatal(err)
		}
	}
}
