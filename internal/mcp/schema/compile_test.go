package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/schema"
)

func TestABadSchemaIsRefusedAndSaysWhere(t *testing.T) {
	for raw, want := range map[string]string{
		`{`:                                    "is not JSON: unexpected EOF",
		`{"type":"strng"}`:                     "type: must be one of",
		`{"type":"object","required":"x"}`:     `required: must be an array, got "x"`,
		`{"properties":{"a":{"pattern":"("}}}`: "properties.a.pattern:",
		`{"properties":{"a":{"minimum":"1"}}}`: `properties.a.minimum: must be a number, got "1"`,
		`{"required":["q"],"properties":{"p":{"patternProperties":{"(":true}}}}`: `properties.p.patternProperties: must not have a member named "("`,
		`{"$ref":"https://example.com/x"}`:                                       `refers to "https://example.com/x", which is outside the schema`,
		`{"$ref":"other.json"}`:                                                  `refers to "other.json", which is outside the schema`,
		`{"$ref":"file:///etc/passwd"}`:                                          `refers to "file:///etc/passwd", which is outside the schema`,
		`{"$schema":"https://example.com/meta"}`:                                 `refers to "https://example.com/meta", which is outside the schema`,
		`{"$ref":"#/$defs/a"}`:                                                   `refers to "#/$defs/a", which is not in the schema`,
		`{"$ref":"#"}`:                                                           "refers to itself",
		`{"allOf":[{"anyOf":[{"$ref":"#"}]}]}`:                                   "refers to itself",
		`{"minimum":1e999999999}`:                                                "minimum: must be a number between",
		`{"a":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`:      "is nested more than 512 deep",
		`{"title":"` + strings.Repeat("x", 1<<20) + `"}`:                         "more than the 1048576 allowed",
		manyPatterns(100):                                                        "has patterns that are too large together",
		doubling(40):                                                             "combines too many schemas",
		chain(500):                                                               "combines too many schemas",
	} {
		_, err := schema.Compile(json.RawMessage(raw))
		e, ok := errors.AsType[*schema.CompileError](err)
		if !ok || len(e.Faults) == 0 || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s\ngot  %v\nwant %s", raw, err, want)
		}
	}
}

func TestAFaultOfTheRootHasNoPath(t *testing.T) {
	_, err := schema.Compile(json.RawMessage(`{"$ref":"#"}`))
	if err == nil || err.Error() != "refers to itself" {
		t.Errorf("got %v", err)
	}
}

// manyPatterns is a schema of n patterns that each count to a thousand.
func manyPatterns(n int) string {
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&list, `,"(a{1,1000})%d":{}`, i)
	}
	return `{"patternProperties":{` + list.String()[1:] + "}}"
}

// doubling is a schema of n definitions that each name the next one twice.
func doubling(n int) string {
	var defs strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%[2]d"}]},`, i, i+1)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"d%d":{}}}`, defs.String(), n)
}

// chain is a schema of n definitions that each name the next one.
func chain(n int) string {
	var defs strings.Builder
	for i := range n {
		fmt.Fprintf(&defs, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
	}
	return fmt.Sprintf(`{"properties":{"a":{"$ref":"#/$defs/d0"}},"$defs":{%s"d%d":{}}}`, defs.String(), n)
}

func TestNoFileIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.json")
	if err := os.WriteFile(file, []byte(`{"type":"object"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{file, "file://" + file} {
		if _, err := schema.Compile(json.RawMessage(`{"$ref":"` + ref + `"}`)); err == nil {
			t.Errorf("%s was followed", ref)
		}
	}
}

func TestASchemaMayReferToItselfOneLevelDown(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"below":{"$ref":"#"},"n":{"type":"integer"}},"additionalProperties":false}`)
	if err := s.Validate(t.Context(), json.RawMessage(`{"below":{"below":{"n":1}}}`)); err != nil {
		t.Error(err)
	}
	err := s.Validate(t.Context(), json.RawMessage(`{"below":{"below":{"n":"x"}}}`))
	if err == nil || !strings.Contains(err.Error(), `below.below.n: must be an integer, got "x"`) {
		t.Errorf("got %v", err)
	}
	deep := strings.Repeat(`{"below":`, 5000) + "{}" + strings.Repeat("}", 5000)
	if err := s.Validate(t.Context(), json.RawMessage(deep)); err == nil || !strings.Contains(err.Error(), "nested more than 512 deep") {
		t.Errorf("got %v", err)
	}
}

func TestOlderDraftsAreUnderstood(t *testing.T) {
	s := compile(t, `{"$schema":"http://json-schema.org/draft-04/schema#","type":"object","properties":{"n":{"type":"number","minimum":1,"exclusiveMinimum":true}}}`)
	if err := s.Validate(t.Context(), json.RawMessage(`{"n":1}`)); err == nil {
		t.Error("exclusiveMinimum of draft 4 is ignored")
	}
}

func TestTheRootMustBeAnObject(t *testing.T) {
	for raw, want := range map[string]string{
		`{"type":"object"}`:          "",
		`{"type":"array"}`:           `type: must be object at the root, got "array"`,
		`{"type":["object","null"]}`: `type: must be object at the root, got ["object","null"]`,
		`{"properties":{}}`:          "type: is required at the root, and must be object",
		`true`:                       "must be a mapping whose type is object, got true",
	} {
		got := ""
		if _, err := schema.CompileObject(json.RawMessage(raw)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}

func TestG5bHeaderAnnotationsThatTheSDKPanicsOnAreRefused(t *testing.T) {
	for properties, want := range map[string]string{
		`"a":{"type":"string","x-mcp-header":"Region"}`: "",
		`"a":{"type":"number","x-mcp-header":"Region"}`: "properties.a.x-mcp-header: fits only an argument whose type",
		`"a":{"type":"string","x-mcp-header":""}`:       "must be a header name",
		`"a":{"type":"string","x-mcp-header":1}`:        "must be a header name",
		`"a":{"type":"string","x-mcp-header":null}`:     "must be a header name",
		`"a":{"type":"string","x-mcp-header":"a b"}`:    "must be a header name",
		`"a":{"type":"string","x-mcp-header":"X"},"b":{"type":"object","properties":{"c":{"type":"string","x-mcp-header":"x"}}}`: "properties.b.properties.c.x-mcp-header: the header x is taken",
	} {
		_, err := schema.CompileInput(json.RawMessage(`{"type":"object","properties":{` + properties + `}}`))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", properties, err, want)
		}
	}
}

func FuzzCompile(f *testing.F) {
	f.Add([]byte(searchSchema), []byte(`{"name":"ab"}`))
	f.Add([]byte(`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`), []byte(`{}`))
	f.Add([]byte(`{"type":"object","unevaluatedProperties":false,"if":{"required":["a"]},"then":{"$dynamicRef":"#x"}}`), []byte(`{"a":[1,1e5]}`))
	f.Add([]byte(doubling(4)), []byte(`{"a":null}`))
	f.Fuzz(func(t *testing.T, raw, args []byte) {
		s, err := schema.Compile(raw)
		if err != nil {
			if e, ok := errors.AsType[*schema.CompileError](err); !ok || len(e.Faults) == 0 {
				t.Fatalf("got %#v, want a CompileError with faults", err)
			}
			return
		}
		for _, err := range []error{s.Validate(t.Context(), args), s.ValidateOutput(t.Context(), args)} {
			if err != nil && err.Error() == "" {
				t.Fatal("a misfit without words")
			}
		}
	})
}
