//go:build !race

package schema_test

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/testing/needs"
)

// Large arguments are checked as small ones are: numbers keep their digits, and
// what does not fit is named.
func TestLargeArguments(t *testing.T) {
	s, err := schema.CompileInput([]byte(`{"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer","maximum":9007199254740992}},"required":["text"]}`))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat(`"quoted" and \\ é `, 1<<12)
	for _, test := range []struct {
		args map[string]any
		want string
	}{
		{map[string]any{"text": text, "n": 1}, ""},
		{map[string]any{"text": text, "n": json.Number("9007199254740993")}, "n: "},
		{map[string]any{"text": []string{text}}, "text: "},
		{map[string]any{"txt": text}, "text: is required"},
	} {
		raw, err := json.Marshal(test.args)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Validate(t.Context(), raw)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %.200v, want %q", err, test.want)
		}
	}
}

// SPEC S2: what would take very much memory to check is refused before it is decoded.
func TestS2ValuesAreCountedBeforeTheyAreDecoded(t *testing.T) {
	needs.Time(t, "reads values of many megabytes")
	s, err := schema.CompileInput([]byte(`{"type":"object","properties":{"text":{"type":"string","minLength":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for value, most := range map[string]int{`{}`: 200_000, `{"":0}`: 200_000, `0`: 1_200_000, `"{{{{{{{{"`: 1_000_000, `{"id":1,"name":"some text","at":1.5}`: 130_000} {
		args := func(n int, end string) []byte {
			return []byte(`{"text":"x","a":[` + strings.Repeat(value+",", n) + value + `]}` + end)
		}
		if err := s.Validate(t.Context(), args(most, "")); err != nil {
			t.Errorf("%d times %s: %v", most, value, err)
		}
		for end, want := range map[string]string{"": "too many values", " x": "is not JSON: invalid character 'x'"} {
			if end != "" && value != "0" {
				continue // what follows is read in the same way, whatever the values are
			}
			raw := args(7*most/4, end)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := s.ValidateOutput(t.Context(), raw)
			runtime.ReadMemStats(&after)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%d times %s: %v; want %s", 7*most/4, value, err, want)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > uint64(2*len(raw)) {
				t.Errorf("%d times %s took %d bytes", 7*most/4, value, took)
			}
		}
	}
}

// SPEC S2: a schema of very many values is refused before it is decoded.
func TestS2ValuesOfASchemaAreCountedBeforeItIsDecoded(t *testing.T) {
	for _, value := range []string{`{}`, `{"":0}`, `0`} {
		raw := []byte(`{"type":"object","x":[` + strings.Repeat(value+",", 120_000) + value + "]}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := schema.Compile(raw)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), "values allowed") {
			t.Errorf("many times %s: %v", value, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(2*len(raw)) {
			t.Errorf("%d bytes of %s took %d", len(raw), value, took)
		}
	}
}

func BenchmarkValidateLargeText(b *testing.B) {
	s, err := schema.CompileInput([]byte(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`))
	if err != nil {
		b.Fatal(err)
	}
	args := []byte(`{"text":"` + strings.Repeat("a", 1<<20) + `"}`)
	b.SetBytes(int64(len(args)))
	for b.Loop() {
		if err := s.Validate(b.Context(), args); err != nil {
			b.Fatal(err)
		}
	}
}
