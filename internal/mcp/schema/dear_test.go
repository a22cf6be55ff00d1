//go:build !race

package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// dear are patterns that the parser needs much time or memory for, and that its program does not show.
var dear = map[string]string{
	"ranges without case":             `(?i)[` + strings.Repeat("B-𞥂", 200) + `]`,
	"ranges without case, in a group": `x(?s-U:y)(?msi:` + strings.Repeat(`[B-\x{1e942}]`, 200) + `)`,
	"ranges without case, with zeros": `(?i)[` + strings.Repeat(`B-\x{000000001e942}`, 200) + `]`,
	"classes by name":                 `[` + strings.Repeat(`\pL`, 2000) + `]`,
	"classes by name, without case":   `(?i)[` + strings.Repeat(`\P{L}`, 500) + `]`,
	"letters without case":            `(?i)[` + strings.Repeat(`\w\W`, 20_000) + `]`,
	"letters by name, without case":   `(?i)[` + strings.Repeat(`[:word:]`, 30_000) + `]`,
	"short ranges without case":       `(?i)[` + strings.Repeat(`A-\xff`, 20_000) + `]`,
	"octal ranges without case":       `(?i)[` + strings.Repeat(`A-\377`, 20_000) + `]`,
}

// SPEC S1: a pattern that is dear to parse is refused before it is parsed.
func TestS1APatternThatIsDearToParseIsRefused(t *testing.T) {
	for name, text := range dear {
		t.Run(name, func(t *testing.T) {
			quoted, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			for _, schema := range []string{`{"type":"object","properties":{"a":{"pattern":%s}}}`, `{"type":"object","patternProperties":{%s:{}},"minProperties":1}`} {
				_, err = Compile(json.RawMessage(fmt.Sprintf(schema, quoted)))
				if err == nil || !strings.Contains(err.Error(), "patterns that are too large together") {
					t.Errorf("%s: %.100v", schema, err)
				}
			}
		})
	}
}

// SPEC S1: so is a value that is to be a regular expression.
func TestS1AValueThatIsDearToParseIsNoRegularExpression(t *testing.T) {
	for name, text := range dear {
		if compiles(text) {
			t.Errorf("%s: it was parsed", name)
		}
	}
	for _, text := range []string{``, `(?i)hello|[a-zà-ÿ]+`, `^[\p{L}\p{N}_-]+$`, `(?i)\bTODO\b`, `(?i)[B-𞥂]`, `(?i)^[\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}]+$`} {
		if !compiles(text) {
			t.Errorf("%s is refused", text)
		}
	}
}

// Patterns as people write them are not dear.
func TestOrdinaryPatternsAreCompiled(t *testing.T) {
	var all []string
	for i, text := range []string{
		`^[\p{L}\p{M}\p{N}\p{P}\p{Zs}]{1,200}$`, `(?i)^(get|post|put)$`, `(?i)^[a-z0-9à-öø-ÿ' -]+$`, `(?i)^#[0-9a-f]{6}$`,
		`^(?:[a-zA-Z]|[\x{00A0}-\x{D7FF}]|[\x{F900}-\x{FDCF}])+$`, `[^\x00-\x1f]`, `^[^-]-[^-]+$`,
	} {
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, fmt.Sprintf(`"a%d":{"pattern":%s}`, i, quoted))
	}
	if _, err := Compile(json.RawMessage(`{"type":"object","properties":{` + strings.Join(all, ",") + `}}`)); err != nil {
		t.Error(err)
	}
}

// SPEC S1: a truth value may be a schema, so there may be as many of them as objects, and each weighs as much.
func TestS1ManyTruthValuesAreRefused(t *testing.T) {
	for _, key := range []string{"prefixItems", "anyOf"} {
		schema := func(n int) json.RawMessage {
			return json.RawMessage(`{"type":"object","properties":{"a":{"` + key + `":[true` + strings.Repeat(",true", n-1) + `]}}}`)
		}
		s, err := Compile(schema(maxObjects))
		if err != nil {
			t.Fatal(err)
		}
		if s.Weight() < perObject*maxObjects {
			t.Errorf("%s: %d truth values weigh %d", key, maxObjects, s.Weight())
		}
		if _, err := Compile(schema(maxObjects + 1)); err == nil || !strings.Contains(err.Error(), "5001 truth values") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// SPEC S1: the compiler keeps the whole path of each subschema, so a long name above many of them is refused.
func TestS1ALongNameAboveManyObjectsIsRefused(t *testing.T) {
	below := make([]string, 1000)
	for i := range below {
		below[i] = fmt.Sprintf(`"a%d":{"minimum":1}`, i)
	}
	for _, each := range []string{strings.Join(below, ","), strings.ReplaceAll(strings.Join(below, ","), `{"minimum":1}`, "true")} {
		schema := func(name string) json.RawMessage {
			return json.RawMessage(`{"type":"object","properties":{"` + name + `":{"properties":{` + each + `}}}}`)
		}
		for _, name := range []string{strings.Repeat("x", 2200), strings.Repeat("~", 800)} {
			if _, err := Compile(schema(name)); err == nil || !strings.Contains(err.Error(), "names that are too long") {
				t.Errorf("%.10s: %.100v", name, err)
			}
		}
		small, err := Compile(schema("x"))
		if err != nil {
			t.Fatal(err)
		}
		large, err := Compile(schema(strings.Repeat("x", 1000)))
		if err != nil {
			t.Fatal(err)
		}
		if more := large.Weight() - small.Weight(); more < 1e6 {
			t.Errorf("paths of a million bytes weigh %d", more)
		}
	}
}

// SPEC S1: so is a long address that many others are relative to.
func TestS1ALongAddressAboveManyIsRefused(t *testing.T) {
	for length, refused := range map[int]bool{1000: false, 3000: true} {
		text := `{"type":"object","$id":"http://x/` + strings.Repeat("x", length) + `/","minProperties":1,"$defs":{`
		_, err := Compile(json.RawMessage(text + many(1000, `"a%[1]d":{"$id":"b%[1]d","minimum":1}`) + "}}"))
		if (err != nil) != refused {
			t.Errorf("%d: %.100v", length, err)
		}
	}
}

// SPEC S1: what the patterns of a refused schema have cost counts among what all of a provider may.
func TestS1ARefusedSchemaHasAWeight(t *testing.T) {
	for text, want := range map[string]bool{
		`{"type":"object","properties":{"a":{"pattern":"(?i)[B-𞥂]"},"b":{"pattern":"("}}}`:                  true,
		`{"type":"object","properties":{"a":{"type":"x"}}}`:                                                 false,
		`{"properties":{"a":{"pattern":"a{1000}"}}}`:                                                        true,
		`{"type":"array","items":{"pattern":"a{1000}"}}`:                                                    true,
		`{"type":"object","properties":{"a":{"type":"number","x-mcp-header":"a"},"b":{"pattern":"a{99}"}}}`: true,
	} {
		_, err := CompileInput(json.RawMessage(text))
		e, refused := errors.AsType[*CompileError](err)
		if !refused || e.Weight > 1000 != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	for text, most := range map[string]int{"(?i)[a-z0-9-]": 10, `(?i)[\x{41}-\x{1e942}]`: 3000, `(?i)[B-\x{-7fffffff}]`: 10, `(?i)[B-\x{00000000041}]`: 10, "[B-𞥂]": 0, "(?i)[à-ÿ]": 10, `(?i)^[\w.-]+@[\w-]+\.[\w-]{2,}$`: 10, `(?i)[a-\x7a]`: 10, `\w\W[[:word:]]`: 0} {
		if cost := costToParse(text); cost < 0 || cost > most {
			t.Errorf("%s costs %d", text, cost)
		}
	}
}

// SPEC S1: many values that are regular expressions cost steps as they take time.
func TestS1ManyRegularExpressionsAreBounded(t *testing.T) {
	s, err := Compile(json.RawMessage(`{"type":"object","properties":{"a":{"items":{"format":"regex"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{1: "", 1000: errCostly.Error()} {
		err := s.ValidateOutput(t.Context(), json.RawMessage(`{"a":[`+many(n, `"(?i)%d[B-𞥂]"`)+`]}`))
		if err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%d: %v; want %q", n, err, want)
		}
	}
}
