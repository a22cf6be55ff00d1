package schema

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// randomSchema writes a schema of a draft with most keywords, over few names and values so
// that values often fit.
func randomSchema(r *rand.Rand, draft string, depth int) any {
	if depth <= 0 || r.IntN(8) == 0 {
		return []any{true, false, map[string]any{}, map[string]any{"type": "object"}, map[string]any{"const": 1}, map[string]any{"$ref": "#/$defs/d"}}[r.IntN(6)]
	}
	s := map[string]any{}
	below := func() any { return randomSchema(r, draft, depth-1) }
	several := func() []any {
		all := []any{below()}
		for range r.IntN(3) {
			all = append(all, below())
		}
		return all
	}
	named := func() map[string]any {
		all := map[string]any{}
		for range 1 + r.IntN(2) {
			all[randomName(r)] = below()
		}
		return all
	}
	newer := map[string]int{"draft-06": 6, "draft-07": 7, "2019-09": 2019, "2020-12": 2020}[draft]
	for range 1 + r.IntN(3) {
		switch r.IntN(30) {
		case 0:
			s["type"] = []any{"object", "array", "string", "number", "integer", "null", "boolean"}[r.IntN(7)]
		case 1:
			s["type"] = []any{"object", "array", "integer"}
		case 2:
			s["const"] = randomValue(r, 1)
		case 3:
			s["enum"] = []any{randomValue(r, 1), randomValue(r, 1), 1.0, "a"}
		case 4:
			s["not"] = below()
		case 5:
			s["allOf"] = several()
		case 6:
			s["anyOf"] = several()
		case 7:
			s["oneOf"] = several()
		case 8:
			s["properties"] = named()
		case 9:
			s["patternProperties"] = map[string]any{"^[ab]": below(), "c$": below()}
		case 10:
			s["additionalProperties"] = below()
		case 11:
			s["required"] = []any{randomName(r)}
		case 12:
			s["minProperties"], s["maxProperties"] = r.IntN(2), 1+r.IntN(3)
		case 13:
			s["propertyNames"] = below()
		case 14:
			s["minItems"], s["maxItems"] = r.IntN(2), 1+r.IntN(3)
		case 15:
			s["uniqueItems"] = true
		case 16:
			s["contains"] = below()
		case 17:
			s["minimum"], s["exclusiveMaximum"] = r.IntN(2), 2+r.IntN(2)
		case 18:
			s["multipleOf"] = []any{0.5, 2}[r.IntN(2)]
		case 19:
			s["minLength"], s["maxLength"] = r.IntN(2), 1+r.IntN(2)
		case 20:
			s["pattern"] = "^[ab]+$"
		case 21:
			s["format"] = []any{"date", "ipv4", "regex", "email"}[r.IntN(4)]
		case 22:
			s["$ref"] = []any{"#/$defs/d", "#/$defs/e"}[r.IntN(2)]
		case 23:
			if newer >= 7 {
				s["if"], s["then"], s["else"] = below(), below(), below()
			}
		case 24:
			if newer >= 2020 {
				s["prefixItems"] = several()
			} else {
				s["items"] = several()
			}
		case 25:
			s["items"] = below()
		case 26:
			if newer < 2020 {
				s["additionalItems"] = below()
			} else {
				s["minContains"], s["maxContains"] = r.IntN(2), 1+r.IntN(2)
			}
		case 27:
			if newer >= 2019 {
				s["unevaluatedProperties"] = below()
			} else {
				s["dependencies"] = map[string]any{randomName(r): below(), "b": []any{"a"}}
			}
		case 28:
			if newer >= 2019 {
				s["unevaluatedItems"] = below()
			}
		case 29:
			if newer >= 2019 {
				s["dependentRequired"], s["dependentSchemas"] = map[string]any{"a": []any{"b"}}, named()
			}
		}
	}
	return s
}

func randomName(r *rand.Rand) string { return []string{"a", "b", "c", "d"}[r.IntN(4)] }

func randomValue(r *rand.Rand, depth int) any {
	n := 9
	if depth <= 0 {
		n = 7
	}
	switch r.IntN(n) {
	case 0:
		return nil
	case 1:
		return r.IntN(2) == 0
	case 2, 3:
		return []any{json.Number("0"), json.Number("1"), json.Number("1.0"), json.Number("1.5"), json.Number("2"), json.Number("-0"), json.Number("1e1")}[r.IntN(7)]
	case 4, 5, 6:
		return []any{"a", "ab", "", "c", "é", "127.0.0.1", "2020-01-01", "a(", "a@b.c"}[r.IntN(9)]
	case 7:
		all := make([]any, r.IntN(4))
		for i := range all {
			all[i] = randomValue(r, depth-1)
		}
		return all
	}
	all := map[string]any{}
	for range r.IntN(4) {
		all[randomName(r)] = randomValue(r, depth-1)
	}
	return all
}

// A schema may ask for a schema: its $dynamicRef or $recursiveRef leads back to the whole.
func TestG4SchemasOfSchemas(t *testing.T) {
	for _, uri := range []string{"https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-07/schema#"} {
		c, err := compiledOf(json.RawMessage(`{"type":"object","properties":{"s":{"$ref":"` + uri + `"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{
			`{"s":{"type":"object","properties":{"a":{"type":"string"}}}}`:              true,
			`{"s":{"type":"object","properties":{"a":{"type":"text"}}}}`:                false,
			`{"s":{"allOf":[{"not":{"items":{"minLength":-1}}}]}}`:                      false,
			`{"s":{"properties":{"a":{"properties":{"a":{"required":"no"}}}}},"x":1}`:   false,
			`{"s":{"properties":{"a":{"properties":{"a":{"required":["no"]}}}}},"x":1}`: true,
		} {
			value, err := decode([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if lib := c.root.Validate(value) == nil; lib != want {
				t.Fatalf("the library says %v of %s", lib, text)
			}
			if got, err := c.check(t.Context(), value, len(text), nil); got != want || err != nil {
				t.Errorf("%s: %s: %v, %v; want %v", uri, text, got, err, want)
			}
		}
	}
}

// filter is a schema as query languages have it: recursive, and told apart by a const.
const filter = `{"type":"object","properties":{"filter":{"$ref":"#/$defs/f"}},"required":["filter"],"$defs":{"f":{"oneOf":[
	{"type":"object","properties":{"op":{"const":"and"},"args":{"type":"array","items":{"$ref":"#/$defs/f"}}},"required":["op","args"]},
	{"type":"object","properties":{"op":{"const":"or"},"args":{"type":"array","items":{"$ref":"#/$defs/f"}}},"required":["op","args"]},
	{"type":"object","properties":{"op":{"const":"not"},"args":{"type":"array","items":{"$ref":"#/$defs/f"}}},"required":["op","args"]},
	{"type":"object","properties":{"op":{"const":"eq"},"value":{}},"required":["op","value"]}]}}}`

func nested(depth int, innermost string) json.RawMessage {
	return json.RawMessage(`{"filter":` + strings.Repeat(`{"op":"and","args":[`, depth) + innermost + strings.Repeat(`]}`, depth) + `}`)
}

// SPEC S1: a recursive schema costs no more for each level, whether the arguments fit or
// not. It was exponential: 12 levels took seconds, and 30 never ended.
func TestS1RecursiveSchemas(t *testing.T) {
	s, err := CompileInput(json.RawMessage(filter))
	if err != nil {
		t.Fatal(err)
	}
	for _, depth := range []int{1, 12, 30, 200} {
		if err := s.Validate(t.Context(), nested(depth, `{"op":"eq","value":1}`)); err != nil {
			t.Errorf("%d levels: %v", depth, err)
		}
		err := s.Validate(t.Context(), nested(depth, `{"op":"eq"}`))
		if err == nil || len(err.Error()) > 10_000 {
			t.Errorf("%d levels: %.300v", depth, err)
		}
	}
}

// SPEC S1, S2: a check ends with the call, and by itself when it takes too many steps.
func TestS2AChecksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"a":{"type":"array","items":{"pattern":"^(a?){50}b"}}}}`))
		if err != nil {
			t.Fatal(err)
		}
		texts := strings.Repeat(`"`+strings.Repeat("a", 500)+`",`, 100_000)
		args := json.RawMessage(`{"a":[` + texts + `""]}`)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if err := s.Validate(ctx, args); !errors.Is(err, gone) {
			t.Errorf("a check whose call is over gave %v", err)
		}
		s, err = CompileInput(json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","pattern":"^(([a-z])*([a-y])*){200}[0-9]$"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		err = s.Validate(t.Context(), json.RawMessage(`{"a":"`+strings.Repeat("a", 40_000)+`"}`))
		if err == nil || !strings.Contains(err.Error(), "takes too long to check against the schema") {
			t.Errorf("an expression that takes too long gave %v", err)
		}
	})
}

// SPEC S2: while others check heavy values, one waits no longer than its call.
func TestS2HeavyChecksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"a":{"type":"array"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		s.shallow = nil
		args := json.RawMessage(`{"a":[` + strings.Repeat("1,", heavy) + `1]}`)
		defer func(before *turns.Queue) { places = before }(places)
		places = turns.NewQueue(2, 1)
		for _, session := range []string{"1", "2"} {
			if err := places.Take(t.Context(), turns.Owner{Session: session}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Validate(ctx, args); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with no turn it gave %v", err)
		}
		places.Give(turns.Owner{Session: "1"})
		if err := s.Validate(t.Context(), args); err != nil {
			t.Error(err)
		}
	})
}

// SPEC N2: checks of heavy values are served by caller in turn: one that has many of them
// keeps another waiting for one.
func TestN2HeavyChecksOfOneCallerLetOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"a":{"type":"array"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		s.shallow = nil
		args := json.RawMessage(`{"a":[` + strings.Repeat("1,", heavy) + `1]}`)
		defer func(before *turns.Queue) { places = before }(places)
		places = turns.NewQueue(1, 0)
		if err := places.Take(t.Context(), turns.Owner{Caller: "big", Session: "1"}); err != nil {
			t.Fatal(err)
		}
		room := turns.NewRoom(1 << 30)
		var mu sync.Mutex // guards checked
		var checked []string
		var checks sync.WaitGroup
		for _, caller := range []string{"big", "big", "big", "big", "small"} {
			checks.Go(func() {
				ctx, release := room.Open(t.Context(), turns.Owner{Caller: caller, Session: "1"})
				defer release()
				if err := s.Validate(ctx, args); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				checked = append(checked, caller)
			})
			synctest.Wait()
		}
		places.Give(turns.Owner{Caller: "big", Session: "1"})
		checks.Wait()
		if at := slices.Index(checked, "small"); at > 1 {
			t.Errorf("another caller's check came after %d of the first one's: %v", at, checked)
		}
	})
}

// SPEC N2: a heavy value is looked through in a turn of its caller, before its check waits for a place.
func TestN2AHeavyValueIsLookedThroughInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"a":{"type":"array"}}}`))
		if err != nil {
			t.Fatal(err)
		}
		s.shallow = nil
		ctx, release := turns.NewRoom(1<<30).Open(t.Context(), turns.Owner{Caller: "one"})
		defer release()
		account := turns.AccountOf(ctx)
		for range turns.Workers() {
			if err := account.BeginWork(ctx); err != nil {
				t.Fatal(err)
			}
		}
		checked := make(chan error, 1)
		go func() { checked <- s.Validate(ctx, json.RawMessage(`{"a":[`+strings.Repeat("1,", heavy)+`1]}`)) }()
		synctest.Wait()
		if len(checked) > 0 {
			t.Error("it does not wait")
		}
		for range turns.Workers() {
			account.EndWork()
		}
		if err := <-checked; err != nil {
			t.Error(err)
		}
	})
}

// An argument of the format "regex" is not one of the schema's patterns: it takes nothing
// of what they may, and is not kept.
func TestS2RegexArgumentsAreNotKept(t *testing.T) {
	s, err := CompileInput(json.RawMessage(`{"type":"object","properties":{"re":{"type":"string","format":"regex"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		args := json.RawMessage(fmt.Sprintf(`{"re":"x{%d}y{500}"}`, i+500))
		if err := s.Validate(t.Context(), args); err != nil {
			t.Fatalf("the argument %d: %v", i, err)
		}
	}
	if err := s.Validate(t.Context(), json.RawMessage(`{"re":"("}`)); err == nil {
		t.Error("( is taken for an expression")
	}
}
