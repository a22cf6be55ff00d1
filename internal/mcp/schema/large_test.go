package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/schema"
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
