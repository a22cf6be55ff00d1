//go:build !race

package schema

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/costtest"
)

// SPEC S1: the check of a value costs no more for each of its parts, whether it fits or not.
func TestS1ChecksCostInProportion(t *testing.T) {
	for _, c := range []struct {
		name, schema string
		n            int
		args         func(n int) string
	}{
		{"a member that is not known, many times", `{"type":"object","additionalProperties":false}`, 2000, func(n int) string { return "{" + many(n, `"a%d":1`) + "}" }},
		{"misfits of items", `{"type":"object","properties":{"a":{"items":{"type":"string"}}}}`, 4000, func(n int) string { return `{"a":[` + many(n, "%d") + "]}" }},
		{"misfits of forms", `{"type":"object","properties":{"a":{"items":{"anyOf":[{"type":"string"},{"required":["x"]}]}}}}`, 2000, func(n int) string { return `{"a":[` + many(n, "%d") + "]}" }},
		{"a misfit beside a large value", `{"type":"object","properties":{"a":{"minItems":1,"items":{"type":"object"}}},"required":["b"]}`, 4000, func(n int) string { return `{"a":[` + many(n, `{"a":%d}`) + "]}" }},
		{"items that fit", `{"type":"object","properties":{"a":{"items":{"anyOf":[{"type":"string"},{"type":"integer","minimum":0}]}}}}`, 4000, func(n int) string { return `{"a":[` + many(n, "%d") + "]}" }},
		{"items that differ", `{"type":"object","properties":{"a":{"uniqueItems":true}}}`, 4000, func(n int) string { return `{"a":[` + many(n, `{"a":%d}`) + "]}" }},
		{"depth", filter, 80, func(n int) string { return string(nested(n, `{"op":"eq","value":1}`)) }},
		{"depth that does not fit", filter, 80, func(n int) string { return string(nested(n, `{"op":"eq"}`)) }},
		{"breadth", filter, 1000, func(n int) string {
			return `{"filter":{"op":"and","args":[` + many(n, `{"op":"eq","value":%d}`) + `]}}`
		}},
		{"an enumeration", `{"type":"object","properties":{"a":{"items":{"enum":[` + many(200, `"x%d"`) + `]}}}}`, 2000, func(n int) string { return `{"a":[` + strings.TrimSuffix(strings.Repeat(`"x199",`, n), ",") + "]}" }},
		{"a long text", `{"type":"object","properties":{"a":{"pattern":"^(a|b|ab)*c$"}}}`, 20_000, func(n int) string { return `{"a":"` + strings.Repeat("ab", n) + `"}` }},
		{"what no schema applied to", `{"type":"object","allOf":[{"patternProperties":{"^b":true}},{"properties":{"a":true}}],"unevaluatedProperties":{"type":"integer"}}`, 2000, func(n int) string { return "{" + many(n, `"a%d":1`) + "}" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := CompileInput(json.RawMessage(c.schema))
			if err != nil {
				t.Fatal(err)
			}
			costtest.Check(t, c.n, func(n int) func() {
				args := json.RawMessage(c.args(n))
				return func() {
					_ = s.Validate(t.Context(), args) // whether it fits is another test's
					_ = s.ValidateOutput(t.Context(), args)
				}
			})
		})
	}
}

// SPEC S1: up to the size at which it is refused, a schema costs no more for each of its
// parts to be compiled.
func TestS1SchemasCostInProportion(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		schema func(n int) string
	}{
		{"references", 400, func(n int) string {
			return `{"type":"object","$defs":{"x":{"type":"string"}},"properties":{` + many(n, `"a%d":{"$ref":"#/$defs/x"}`) + `}}`
		}},
		{"properties", 500, func(n int) string {
			return `{"type":"object","properties":{` + many(n, `"a%d":{"type":"string"}`) + `}}`
		}},
		{"faults", 4000, func(n int) string { return `{"type":"object","required":[` + many(n, "%d") + `]}` }},
		{"values", 10_000, func(n int) string { return `{"type":"object","properties":{"a":{"enum":[` + many(n, "%d") + `]}}}` }},
		{"depth", 200, func(n int) string {
			return `{"type":"object","not":` + strings.Repeat(`{"items":`, n) + "{}" + strings.Repeat("}", n) + "}"
		}},
		{"ranges without case", 50_000, func(n int) string {
			return `{"type":"object","properties":{"a":{"pattern":"(?i)[` + strings.Repeat("A-z", n) + `]"}}}`
		}},
		{"too many", 10_000, func(n int) string { return `{"type":"object","properties":{` + many(n, `"a%d":{"$ref":"#"}`) + `}}` }},
	} {
		t.Run(c.name, func(t *testing.T) {
			costtest.Check(t, c.n, func(n int) func() {
				raw := json.RawMessage(c.schema(n))
				return func() { _, _ = CompileInput(raw) } // whether it is sound is another test's
			})
		})
	}
}
