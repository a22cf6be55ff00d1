package rawjson_test

import (
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// Deep nesting neither takes the stack nor is taken for a mere many of brackets.
func TestValidIsSureOfItsStack(t *testing.T) {
	for _, test := range []struct {
		name string
		raw  string
		want bool
	}{
		{"many small ones", "[" + strings.Repeat("{},", 50_000) + "{}]", true},
		{"many small ones, broken", "[" + strings.Repeat("{},", 50_000) + "{]", false},
		{"brackets in a text", `"` + strings.Repeat(`[{\"`, 50_000) + `"`, true},
		{"deep", strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000), true},
		{"too deep", strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000), false},
		{"deep without an end", strings.Repeat("[", 16<<20), false},
		{"closed too often", strings.Repeat("]", 50_000) + strings.Repeat("[", 50_000), false},
	} {
		if got := rawjson.Valid([]byte(test.raw)); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}
