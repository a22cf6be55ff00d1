package schema_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/schema"
)

func compile(t *testing.T, raw string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile(json.RawMessage(raw))
	if err != nil {
		t.Fatalf("compile %s: %v", raw, err)
	}
	return s
}

const searchSchema = `{
	"type": "object",
	"properties": {
		"name": {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"},
		"count": {"type": "integer", "minimum": 1, "maximum": 1e2, "multipleOf": 0.5},
		"kind": {"enum": ["a", "b", 3]},
		"mail": {"type": "string", "format": "email"},
		"items": {"type": "array", "maxItems": 2, "uniqueItems": true, "items": {"type": "object", "required": ["id"]}},
		"either": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["x"]}]},
		"one": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
		"big": {"const": 12345678901234567890},
		"maybe": {"type": ["string", "null"]},
		"never": false
	},
	"required": ["name"],
	"additionalProperties": false,
	"dependentRequired": {"mail": ["kind"]}
}`

func TestG4ARefusalNamesTheArgument(t *testing.T) {
	s := compile(t, searchSchema)
	for args, want := range map[string]string{
		`{"name":"ab"}`:                            "",
		` {"name":"ab","count":1,"name":"ab"} `:    "",
		`{"name":"ab","big":12345678901234567890}`: "",
		`{"name":"ab","big":12345678901234567891}`: "big: must be 12345678901234567890, got 12345678901234567891",
		`{"count":"abc"}`:                          `count: must be an integer, got "abc"; name: is required`,
		``:                                         "name: is required",
		`null`:                                     "name: is required",
		`[]`:                                       "must be a JSON object, got []",
		`"x"`:                                      `must be a JSON object, got "x"`,
		`{`:                                        "is not JSON: unexpected EOF",
		`{"name":"A"}`:                             `name: must have at least 2 characters, got 1; name: must match the pattern ^[a-z]+$, got "A"`,
		`{"name":"ab","count":0}`:                  "count: must be at least 1, got 0",
		`{"name":"ab","count":101}`:                "count: must be at most 100, got 101",
		`{"name":"ab","kind":"c"}`:                 `kind: must be one of "a", "b", 3, got "c"`,
		`{"name":"ab","mail":"x","kind":"a"}`:      `mail: must be a valid email, got "x"`,
		`{"name":"ab","mail":"a@b.c"}`:             "kind: is required when mail is given",
		`{"name":"ab","items":[{}]}`:               "items[0].id: is required",
		`{"name":"ab","items":[{"id":1},{"id":1}]}`:               "items: items must be unique, but [0] and [1] are equal",
		`{"name":"ab","items":[{"id":1},2,3]}`:                    "items: must have at most 2 items, got 3; items[1]: must be an object, got 2; items[2]: must be an object, got 3",
		`{"name":"ab","either":1}`:                                "either: must be a string, got 1; or must be an object, got 1",
		`{"name":"ab","either":{}}`:                               "either: must be a string, got {}; or either.x is required",
		`{"name":"ab","one":1}`:                                   "one: matches more than one of the forms, but must match exactly one, got 1",
		`{"name":"ab","maybe":1}`:                                 "maybe: must be null or a string, got 1",
		`{"name":"ab","never":1}`:                                 "never: is not allowed",
		`{"name":"ab","nome":1}`:                                  "nome: is not known here; known are big, count, either, items, kind, mail, maybe, name, never, one",
		`{"name":"` + strings.Repeat("é", 60) + `"}`:              `name: must match the pattern ^[a-z]+$, got "` + strings.Repeat("é", 39) + "…",
		`{"name":"ab","count":1e999999999}`:                       "count: must be a number between 1e-400 and 1e400, got 1e999999999",
		`{"name":"ab","count":` + strings.Repeat("1", 2000) + `}`: "count: must be a number of at most 1000 digits",
	} {
		err := s.Validate(t.Context(), json.RawMessage(args))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", args, err)
			}
			continue
		}
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Code != fault.InvalidInput {
			t.Errorf("%s: got %v, want a fault of invalid_input", args, err)
			continue
		}
		if want = "arguments: " + want; f.Reason != want {
			t.Errorf("%s\ngot  %s\nwant %s", args, f.Reason, want)
		}
	}
}

func TestAtMostTenMisfitsAreListed(t *testing.T) {
	s := compile(t, `{"type":"object","additionalProperties":{"type":"string"}}`)
	var args strings.Builder
	for i := range 15 {
		fmt.Fprintf(&args, `,"a%02d":%d`, i, i)
	}
	err := s.Validate(t.Context(), json.RawMessage("{"+args.String()[1:]+"}"))
	if err == nil || strings.Count(err.Error(), "must be a string") != 10 || !strings.HasSuffix(err.Error(), "; and 5 more") {
		t.Errorf("got %v", err)
	}
}

func TestAnOpenSchemaDecodesNothing(t *testing.T) {
	for _, raw := range []string{
		`{"type":"object"}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","description":"x","properties":{},"additionalProperties":true}`,
	} {
		s := compile(t, raw)
		args := json.RawMessage(`{"a":[` + strings.Repeat(`1,`, 10_000) + `1]}`)
		if n := testing.AllocsPerRun(10, func() {
			if err := s.Validate(t.Context(), args); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", raw, n)
		}
		if err := s.Validate(t.Context(), json.RawMessage(`[1]`)); err == nil {
			t.Errorf("%s: a list is taken", raw)
		}
	}
}

func TestC3AnOutputMustBeJSONThatFits(t *testing.T) {
	open, closed := compile(t, `{"type":"object"}`), compile(t, `{"type":"object","required":["n"]}`)
	for _, c := range []struct {
		s         *schema.Schema
		raw, want string
	}{
		{open, ` {"a":1} `, ""},
		{open, `{"a":1`, "is not JSON: unexpected EOF"},
		{open, ``, "is not JSON: EOF"},
		{open, `null`, "must be an object, got null"},
		{closed, `{"n":1}`, ""},
		{closed, `{}`, "n: is required"},
		{closed, `{"n":1} x`, "is not JSON: invalid character after top-level value"},
	} {
		got := ""
		if err := c.s.ValidateOutput(t.Context(), json.RawMessage(c.raw)); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: got %q, want %q", c.raw, got, c.want)
		}
	}
}

func TestASchemaIsSafeForConcurrentUse(t *testing.T) {
	s := compile(t, searchSchema)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				if err := s.Validate(t.Context(), json.RawMessage(`{"name":"ab","mail":"x","items":[{}]}`)); err == nil {
					t.Error("a misfit is taken")
				}
			}
		})
	}
	wg.Wait()
}
