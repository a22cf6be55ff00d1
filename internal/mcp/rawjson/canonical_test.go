package rawjson_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// canonical appends the canonical form to something.
func canonical(raw []byte) (string, bool) {
	out, ok := new(rawjson.Canonicalizer).Append([]byte("before"), raw)
	return string(out[len("before"):]), ok
}

// SPEC-TOOLS 8.7 and 8.8: values that mean the same have one form.
func TestT87CanonicalForms(t *testing.T) {
	for in, want := range map[string]string{
		`{}`: `{}`,
		` { "b" : [ 1 , 2.0 , -1e+3 ] , "a" : { } } `:     `{"a":{},"b":[1,2.0,-1e+3]}`,
		`{"a":[],"c":null,"b":true}`:                      `{"a":[],"b":true,"c":null}`,
		`{"z":{"y":1,"x":2},"a":{"c":3,"b":4}}`:           `{"a":{"b":4,"c":3},"z":{"x":2,"y":1}}`,
		`{"a":2,"a":1}`:                                   `{"a":2,"a":1}`,
		`{"\u0061":"\u20ac\u000A\/\u001f\"\\"}`:           `{"a":"€\n/\u001f\"\\"}`,
		`["\ufffd","\ud83d\ude00\ufffd","\\ud800\ufffd"]`: `["�","😀�","\\ud800�"]`,
		// The order of RFC 8785, 3.2.3: by UTF-16 code units.
		`{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`: "{\"\\r\":2,\"1\":4,\"\u0080\":6,\"ö\":7,\"€\":1,\"😀\":5,\"\ufb33\":3}",
	} {
		if got, ok := canonical([]byte(in)); !ok || got != want {
			t.Errorf("%s: got %s, %v; want %s", in, got, ok, want)
		}
	}
	for name, in := range map[string]string{
		"too deep":  strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
		"too large": `"` + strings.Repeat("x", 1<<20) + `"`,
		// RFC 8785, 3.2.2.2: there is no form for half a character.
		"a first half":              `{"a":"\ud800"}`,
		"a second half":             `{"a":"x\udc00"}`,
		"halves in the wrong order": `"\udc00\ud800"`,
		"a first half and a letter": `"\udbff\u0041"`,
		"a first half at the end":   `["\\\uD83D"]`,
		"half a name":               `{"\ud800":1}`,
		"not UTF-8":                 "\"\\n\xff\"",
	} {
		if _, ok := canonical([]byte(in)); ok {
			t.Errorf("%s: it has a canonical form", name)
		}
	}
}

// SPEC S1: what a form costs does not grow faster than the value, whatever its names are.
func TestS1NamesAreDecodedOnce(t *testing.T) {
	object := func(name string, n int) []byte {
		var out strings.Builder
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
			fmt.Fprintf(&out, `,"%s%05d":1`, name, i)
		}
		return []byte("{" + out.String()[1:] + "}")
	}
	allocs := func(raw []byte) float64 { return testing.AllocsPerRun(3, func() { canonical(raw) }) }
	const n = 5000
	if got := allocs(object("é", n)); got > 10*n {
		t.Errorf("%d names that are not ASCII take %.0f allocations", n, got)
	}
}

// What encoding/json makes of a value has one canonical form, whatever the order and the spaces.
func FuzzT87Canonical(f *testing.F) {
	f.Add(`{"a":1,"b":[{"d":"\u00e9","c":null}]}`, uint64(1))
	f.Add(`[1,"x",{"":{}}]`, uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		var value any
		d := json.NewDecoder(strings.NewReader(text))
		d.UseNumber()
		if !json.Valid([]byte(text)) || d.Decode(&value) != nil {
			return
		}
		tight, ok := canonical(shuffled(value, rand.New(rand.NewPCG(seed, 1))))
		again, ok2 := canonical(shuffled(value, rand.New(rand.NewPCG(seed, 2))))
		if ok != ok2 || ok && tight != again {
			t.Fatalf("%s has the forms %s and %s", text, tight, again)
		}
		if ok && !json.Valid([]byte(tight)) {
			t.Fatalf("%s became %s", text, tight)
		}
		if got, ok := canonical([]byte(text)); ok && !json.Valid([]byte(got)) {
			t.Fatalf("%s became %s", text, got)
		}
	})
}

// shuffled writes a value with its members in a random order, and spaces.
func shuffled(value any, r *rand.Rand) []byte {
	switch v := value.(type) {
	case map[string]any:
		var keys []string
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		out := []byte("{ ")
		for i, key := range keys {
			if i > 0 {
				out = append(out, " ,\n"...)
			}
			name, _ := json.Marshal(key)
			out = append(append(append(out, name...), " :\t"...), shuffled(v[key], r)...)
		}
		return append(out, " }"...)
	case []any:
		out := []byte("[")
		for i, item := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, shuffled(item, r)...)
		}
		return append(out, ']')
	default:
		out, _ := json.Marshal(v)
		return out
	}
}
