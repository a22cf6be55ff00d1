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

// SPEC S2: what is repeated of others is one line, and has nothing that a terminal obeys or does not show.
func TestS2ATextOfOthersIsOnePlainLine(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "",
		" a\tb\r\nc\n":                "a b  c",
		"a\x1b[31mb\x00\u202ec\u2028": "a[31mbc",
		"a\xffb\uFFFDä ö":             "abä ö",
	} {
		if got := brief.Plain(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
