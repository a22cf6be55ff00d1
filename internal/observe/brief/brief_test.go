package brief_test

import (
	"testing"

	"github.com/orla-project/orla/internal/observe/brief"
)

// SPEC S2: what is quoted of others is bounded, and no rune is cut in two.
func TestS2ATextIsCutBetweenRunes(t *testing.T) {
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"", 0, ""},
		{"abc", 3, "abc"},
		{"abcd", 3, "abc…"},
		{"aä", 3, "aä"},
		{"aäb", 2, "a…"},
		{"a€b", 3, "a…"},
		{"a\xffbc", 3, "ab…"},
	} {
		if got := brief.Cut(c.text, c.most); got != c.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
