package urimatch_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/mcp/urimatch"
)

// SPEC S1: a template that the library cannot compile, or that costs too much, is refused.
func TestS1TemplatesAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"not a template":      "a{",
		"empty":               "{}",
		"too long":            "a:" + strings.Repeat("x", urimatch.MaxLength),
		"many expressions":    strings.Repeat("{a}", urimatch.MaxVariables+1),
		"many in one":         "{a" + strings.Repeat(",a", urimatch.MaxVariables) + "}",
		"1002 variables":      "{a" + strings.Repeat(",a", 1001) + "}",
		"1002 of short names": "{a" + strings.Repeat(",", 1001) + "}",
		"not UTF-8":           "a:\xff{x}",
	} {
		if _, err := urimatch.Compile(text); err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
	full, err := urimatch.Compile("a:{a" + strings.Repeat(",a", urimatch.MaxVariables-1) + "}")
	if err != nil {
		t.Fatal(err)
	}
	if full.Matches("a:" + strings.Repeat("x", urimatch.MaxURI)) {
		t.Error("a URI that is too long matches")
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		template, uri string
		want          bool
	}{
		{"a:b", "a:b", true},
		{"a:b", "a:bb", false},
		{"a:{x}", "a:b", true},
		{"a:{x}", "a:b/c", false},
		{"a:{+x}", "a:b/c", true},
		{"a:{x}/c", "a:b/c", true},
		{"a:{x}/c", "a:b/d", false},
		{"a{?q,r}", "a?q=1&r=2", true},
		{"{+all}", "any:thing", true},
		{"a:{x}b{y}", "a:b", true},
		{"a:aa{x}aa", "a:aaa", false},
	} {
		compiled, err := urimatch.Compile(test.template)
		if err != nil {
			t.Fatal(err)
		}
		if got := compiled.Matches(test.uri); got != test.want {
			t.Errorf("%s matches %s: %v", test.template, test.uri, got)
		}
	}
}

// Templates that differ in the names of variables alone are of one form.
func TestForm(t *testing.T) {
	for text, want := range map[string]string{
		"a:{x}/{y}": "a:{}/{}", "a:{+x}": "a:{+}", "a:{x,y}": "a:{,}", "a{?x*,y:3}b": "a{?*,}b", "a": "a",
	} {
		compiled, err := urimatch.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		if compiled.Form != want {
			t.Errorf("%s is of the form %s; want %s", text, compiled.Form, want)
		}
	}
}

// The most specific template is found, in whatever order they are added.
func TestIndexFindsTheMostSpecific(t *testing.T) {
	texts := []string{"{+all}", "a:{x}", "a:{+x}", "a:{x}/end", "a:b/{x}", "a:b/{x}/end", "a:b/{+x}", "a:c"}
	for turn := range texts {
		var index urimatch.Index[string]
		for i := range texts {
			text := texts[(i+turn)%len(texts)]
			compiled, err := urimatch.Compile(text)
			if err != nil {
				t.Fatal(err)
			}
			index.Add(compiled, text)
		}
		index.Sort()
		for uri, want := range map[string]string{
			"z:": "{+all}", "a:1": "a:{x}", "a:1/2": "a:{+x}", "a:1/end": "a:{x}/end", "a:b/1": "a:b/{x}", "a:b/1/end": "a:b/{x}/end",
			"a:b/1/2": "a:b/{+x}", "a:c": "a:c", "a:cc": "a:{x}",
		} {
			if got, _ := index.Find(uri); got != want {
				t.Errorf("%d: %s comes from %q; want %q", turn, uri, got, want)
			}
		}
		if got, ok := index.Find("z:" + fmt.Sprintf("%09000d", 1)); ok {
			t.Errorf("a long URI comes from %q", got)
		}
	}
}

// SPEC S2: a long URI is compared with some templates only, and a short one with all.
func TestS2ALongURIIsComparedWithFewTemplates(t *testing.T) {
	var x urimatch.Index[int]
	add := func(text string, value int) {
		t.Helper()
		one, err := urimatch.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		x.Add(one, value)
	}
	for i := range 255 {
		add(fmt.Sprintf("a://{x}/y%d/{z}", i+1000), i)
	}
	add("a://{+all}", 255) // the least specific
	x.Sort()
	for uri, want := range map[string]bool{
		"a://" + strings.Repeat("b", 100):  true,
		"a://" + strings.Repeat("b", 8000): false,
	} {
		if _, ok := x.Find(uri); ok != want {
			t.Errorf("a URI of %d bytes is found: %v", len(uri), ok)
		}
	}
}
