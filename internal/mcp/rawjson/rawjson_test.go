package rawjson_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// seeds are texts that a reader of JSON may stumble over.
var seeds = []string{
	`{}`, `[]`, `5`, `"x"`, `null`, ``, ` `, `{`, `"`, `{"a":1}x`,
	` { "a" : 1 , "b":[{"c":"}"}," ]"],"d":{} } `, `{"a":"\"\\","b":-1.5e+3,"c":null}`,
	`{"\u0061":1}`, `{"":""}`, `{"a":1,"a":2}`, "{\"a\":\r\n\t[1,\n2]}", `[ ]`, `{ }`, `[[],{},"",0]`, `["\\\\\"", "\\"]`,
	`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{}}}`,
	"\"\xff\"", "{\"\xff\":1}", `"\ud800"`, "\"\x00\"", `01`, `1.`, `-`, `+1`, `1e5`, `tru`, `[1,]`, `{"a":}`, `{"a" 1}`, "\ufeff{}", "\v1",
}

func TestMembersAndElementsOfWhatTheyAreNot(t *testing.T) {
	none := func([]byte, json.RawMessage) bool { t.Error("a member of no object"); return true }
	for _, raw := range []string{`[]`, `5`, `"x"`, `null`, ` [1]`} {
		if rawjson.Members([]byte(raw), none) {
			t.Errorf("Members(%s) says it is an object", raw)
		}
	}
	for _, raw := range []string{`{}`, `5`, `"x"`, `null`} {
		if rawjson.Elements([]byte(raw), func(json.RawMessage) bool { return true }) {
			t.Errorf("Elements(%s) says it is an array", raw)
		}
	}
	if rawjson.Members([]byte(`{"a":1,"\u0062":2}`), func([]byte, json.RawMessage) bool { return true }) {
		t.Error("a key with an escape passes")
	}
	seen := 0
	if rawjson.Members([]byte(`{"a":1,"b":2}`), func([]byte, json.RawMessage) bool { seen++; return false }) || seen != 1 {
		t.Errorf("%d members after the first was refused", seen)
	}
}

// All members are found, whatever their keys are, in order.
func TestAllMembers(t *testing.T) {
	var got strings.Builder
	all := func(key []byte, value json.RawMessage) bool {
		fmt.Fprintf(&got, "%s=%s ", key, value)
		return string(key) != "last"
	}
	if !rawjson.AllMembers([]byte(` {"a":1,"\u0062\"":[2], "":{} , "é\u00e9":"\u0062","a":3}`), all) || got.String() != `a=1 b"=[2] ={} éé="\u0062" a=3 ` {
		t.Errorf("got %s", got.String())
	}
	got.Reset()
	if rawjson.AllMembers([]byte(`{"\u006cast":1,"b":2}`), all) || got.String() != "last=1 " {
		t.Errorf("got %s", got.String())
	}
	if rawjson.AllMembers([]byte(`["a"]`), all) {
		t.Error("an array is an object")
	}
}

// longNumber finds what may be a number that is too long.
var longNumber = regexp.MustCompile(`[-+.0-9eE]{1000}[-+.0-9eE]`)

// SPEC N2: a number of thousands of digits, which ends many capsules, is not JSON.
func TestN2ANumberHasABound(t *testing.T) {
	digits := func(n int) string { return strings.Repeat("1", n) }
	for _, c := range []struct {
		raw  string
		want bool
	}{
		{digits(1000), true},
		{digits(1001), false},
		{"[-" + digits(999) + "]", true},
		{"[-" + digits(1000) + "]", false},
		{`{"a":0.` + digits(998) + "}", true},
		{`{"a":0.` + digits(5000) + "}", false},
		{"1e" + digits(999), false},
		{`"` + digits(5000) + `"`, true},
	} {
		if got := rawjson.Valid([]byte(c.raw)); got != c.want {
			t.Errorf("%.20s… of %d bytes: %t", c.raw, len(c.raw), got)
		}
	}
}

// Depth is what a reader that recurses dies of.
func TestValidOfDepth(t *testing.T) {
	for _, n := range []int{9_000, 20_000, 5_000_000} {
		raw := []byte(strings.Repeat("[", n) + strings.Repeat("]", n))
		if got := rawjson.Valid(raw); got != json.Valid(raw) {
			t.Errorf("Valid of depth %d = %v", n, got)
		}
		if raw = raw[:len(raw)-1]; rawjson.Valid(raw) {
			t.Errorf("depth %d is valid without its end", n)
		}
	}
}

// Whatever stands wherever in a string, long or short: it is read in words.
func TestValidOfStrings(t *testing.T) {
	for _, size := range []int{0, 1, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 200} {
		for _, odd := range []string{"", `"`, `\`, `\"`, `\\`, `\n`, `\x`, `\u00e9`, `\u00G9`, `\u00`, "\x00", "\x1f", "\n", "\x7f", "\x80", "\xff", "é", "\u2028", " ", "!", "[", "]"} {
			for at := 0; at <= size; at += max(1, size/13) {
				raw := []byte(`"` + strings.Repeat("x", at) + odd + strings.Repeat("y", size-at) + `"`)
				want := json.Valid(raw)
				valid, ascii := rawjson.Check(raw)
				if plain := !strings.ContainsFunc(odd, func(r rune) bool { return r >= utf8.RuneSelf }); valid != want || valid && ascii != plain {
					t.Errorf("Check(%q) = %v, %v; want %v, %v", raw, valid, ascii, want, plain)
				}
			}
		}
	}
}

func TestString(t *testing.T) {
	for raw, want := range map[string]string{`"a b"`: "a b", `""`: "", `"\u0061"`: "", `5`: "", `"`: "", ``: "", `{"a":"b"}`: ""} {
		if got := rawjson.String([]byte(raw)); got != want {
			t.Errorf("String(%s) = %q; want %q", raw, got, want)
		}
	}
}

// What a member is can be changed without harm to what comes after it.
func TestPartsHaveNoRoom(t *testing.T) {
	raw := []byte(`{"a":[1],"b":2}`)
	rawjson.Members(raw, func(_ []byte, value json.RawMessage) bool {
		_ = append(value, "xxxxxxxx"...)
		rawjson.Elements(value, func(e json.RawMessage) bool { _ = append(e, "yyyy"...); return true })
		return true
	})
	if string(raw) != `{"a":[1],"b":2}` {
		t.Errorf("it became %s", raw)
	}
}

// A text is quoted as encoding/json quotes it, whatever bytes it has, and wherever.
func TestQuote(t *testing.T) {
	check := func(text string) {
		t.Helper()
		want, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := rawjson.Quote(text); !bytes.Equal(got, want) {
			t.Errorf("Quote(%q) = %s; want %s", text, got, want)
		}
	}
	const plain = "a plain text of 33 bytes, or more"
	for at := range len(plain) {
		for c := range 256 {
			check(plain[:at] + string([]byte{byte(c)}) + plain[at:])
			check(plain[:at] + string([]byte{byte(c)}))
		}
	}
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if r < 0x3000 || r%61 == 0 || r&0xfff < 2 || r&0xfff > 0xffd { // those beyond are alike
			check(plain + string(r))
		}
	}
	check("")
}

// FuzzRawJSON holds the fast reader against encoding/json.
func FuzzRawJSON(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if quoted, err := json.Marshal(string(raw)); err != nil || !bytes.Equal(rawjson.Quote(string(raw)), quoted) {
			t.Fatalf("Quote(%q) = %s; want %s, %v", raw, rawjson.Quote(string(raw)), quoted, err)
		}
		valid := json.Valid(raw) && !longNumber.Match(raw)
		if got := rawjson.Valid(raw); got != valid && !longNumber.Match(raw) {
			t.Fatalf("Valid(%q) = %v; encoding/json says %v", raw, got, valid)
		}
		if !valid {
			return
		}
		compact := rawjson.Compact(raw)
		if bytes.ContainsAny(compact, "\r\n") {
			t.Fatalf("Compact(%q) has lines: %q", raw, compact)
		}
		if _, ascii := rawjson.Check(raw); ascii == bytes.ContainsFunc(raw, func(r rune) bool { return r >= utf8.RuneSelf }) {
			t.Fatalf("Check(%q) says ASCII: %v", raw, ascii)
		}
		compareAfter(t, raw)
		compareMembers(t, raw)
		compareElements(t, raw)
		var text string
		if got := rawjson.String(bytes.TrimSpace(raw)); got != "" && (json.Unmarshal(raw, &text) != nil || text != strings.ToValidUTF8(got, "\uFFFD") && !strings.ContainsRune(text, '\uFFFD')) {
			t.Fatalf("String(%q) = %q; want %q", raw, got, text)
		}
	})
}

func compareMembers(t *testing.T, raw []byte) {
	t.Helper()
	got := map[string]json.RawMessage{}
	if !rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		got[string(key)] = value
		return true
	}) {
		return
	}
	var want map[string]json.RawMessage
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatalf("%q has members, but: %v", raw, err)
	}
	for _, key := range slices.Collect(maps.Keys(want)) {
		if strings.ContainsRune(key, '\uFFFD') {
			return // encoding/json corrects keys that are not UTF-8; two may become one
		}
	}
	if !maps.EqualFunc(got, want, func(a, b json.RawMessage) bool { return bytes.Equal(a, bytes.TrimSpace(b)) }) {
		t.Fatalf("%q: members %q; want %q", raw, got, want)
	}
}

// compareAfter holds After against the members that there are.
func compareAfter(t *testing.T, raw []byte) {
	t.Helper()
	first := map[string]json.RawMessage{}
	rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		if _, again := first[string(key)]; !again {
			first[string(key)] = value
		}
		return true
	})
	for key, value := range first {
		if rest, ok := rawjson.After(raw, key); !ok || !bytes.HasPrefix(rest, value) {
			t.Fatalf("%q: after %q comes %q, %v; want %q", raw, key, rest, ok, value)
		}
	}
	if rest, ok := rawjson.After(raw, "no such key"); ok && first["no such key"] == nil {
		t.Fatalf("%q: there is %q", raw, rest)
	}
}

func compareElements(t *testing.T, raw []byte) {
	t.Helper()
	var got []json.RawMessage
	if !rawjson.Elements(raw, func(value json.RawMessage) bool {
		got = append(got, value)
		return true
	}) {
		return
	}
	var want []json.RawMessage
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatalf("%q has elements, but: %v", raw, err)
	}
	if !slices.EqualFunc(got, want, func(a, b json.RawMessage) bool { return bytes.Equal(a, bytes.TrimSpace(b)) }) {
		t.Fatalf("%q: elements %q; want %q", raw, got, want)
	}
}

func BenchmarkValid(b *testing.B) {
	for name, raw := range map[string]string{
		"1MiB text":    `{"a":"` + strings.Repeat("some text, and more. ", 50_000) + `"}`,
		"1MiB objects": `[` + strings.Repeat(`{"k":"v","n":123456,"b":true},`, 35_000) + `0]`,
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			for b.Loop() {
				rawjson.Valid([]byte(raw))
			}
		})
	}
}

// A value's weight is near what it takes once it is decoded, and seldom less.
func TestWeight(t *testing.T) {
	for _, value := range []string{`0`, `12345678`, `""`, `"{[,{[,{[,"`, `{"":0}`, `{"":{}}`, `[0]`, `[[[0]]]`, `{"a":"b"}`, `{"a":0,"b":0,"c":0,"d":0,"e":0,"f":0,"g":0,"h":0,"i":0}`} {
		raw := []byte("[" + strings.Repeat(value+",", 20_000) + value + "]")
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		decoded, err := rawjson.Decode(raw)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		takes := int64(after.HeapAlloc) - int64(before.HeapAlloc) //nolint:gosec // it is no larger
		if weight := rawjson.Weight(raw); weight < takes*3/4 || weight > takes*6 {
			t.Errorf("%s takes %d each and weighs %d", value, takes/20_000, weight/20_000)
		}
		runtime.KeepAlive(decoded)
		runtime.KeepAlive(raw)
	}
}

func TestValues(t *testing.T) {
	for raw, want := range map[string]int{
		`1`: 1, `"a,[{\\\"{"`: 1, `[]`: 2, ` { "a,b" : [ 1 , 2 ] } `: 4, `{"a":1,"b":{"c":"]"}}`: 4,
	} {
		if got := rawjson.Values([]byte(raw)); got != want {
			t.Errorf("%s: %d, want %d", raw, got, want)
		}
	}
}

func TestEncodeEscapesNothingForHTML(t *testing.T) {
	raw, err := rawjson.Encode(map[string]any{"a": "<&>\n", "b": json.RawMessage(` [1] `)})
	if want := `{"a":"<&>\n","b":[1]}`; err != nil || string(raw) != want {
		t.Errorf("%s %v, want %s", raw, err, want)
	}
	if raw, err := rawjson.Encode(func() {}); err == nil || len(raw) != 0 {
		t.Errorf("%q %v", raw, err)
	}
}
