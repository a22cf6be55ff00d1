package history

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a line says, what is kept of it is a JSON object within the limit
// whose members are those of the line, or starts of them.
func FuzzShortened(f *testing.F) {
	f.Add("state", "text\x1b[31m\u2028é", 100, 3)
	f.Add(strings.Repeat("long", 100), strings.Repeat(`\"`, 100), 90, 1)
	f.Fuzz(func(t *testing.T, key, text string, limit, times int) {
		if !utf8.ValidString(key) || !utf8.ValidString(text) {
			t.Skip("no text of JSON")
		}
		limit = 64 + (limit&0xffff)%1000
		full, _ := json.Marshal(map[string]any{key: strings.Repeat(text, 1+times&0xf), "n": 123, "nested": []string{text, key}})
		got := shortened(full, limit)
		if len(full) <= limit {
			if string(got) != string(full) {
				t.Errorf("%s became %s", full, got)
			}
			return
		}
		var was, is map[string]any
		if err := json.Unmarshal(full, &was); err != nil {
			t.Skip(err)
		}
		if err := json.Unmarshal(got, &is); err != nil || len(got) > limit {
			t.Fatalf("%q is %d bytes of %d: %v", got, len(got), limit, err)
		}
		if _, said := is[cutKey]; !said {
			t.Errorf("%q does not say that it was cut", got)
		}
		for name, value := range is {
			start, isText := value.(string)
			whole, _ := was[name].(string)
			if name != cutKey && isText && start != whole && !strings.HasPrefix(whole, strings.TrimSuffix(start, ellipsis)) {
				t.Errorf("%q: %q is not the beginning of %q", name, start, whole)
			}
		}
	})
}

// Something that is not an object is not a line of the log; it does no harm.
func TestShortenedTakesAnything(t *testing.T) {
	for _, c := range []string{"", "[", "{", `{"a"`, `{"a":`, `{"a":"`, `{"a":"b"`, "nonsense", `["x"]`} {
		got := shortened([]byte(c+strings.Repeat(" ", 100)), 90)
		if !json.Valid(got) || len(got) > 90 {
			t.Errorf("%q became %q", c, got)
		}
	}
}
