package urimatch_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/mcp/urimatch"
	"github.com/orla-project/orla/internal/testing/costtest"
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
	full := "a:{a" + strings.Repeat(",a", urimatch.MaxVariables-1) + "}"
	if !matches(t, full, "a:"+strings.Repeat("x", urimatch.MaxURI-2)) {
		t.Error("a URI of the most bytes does not match")
	}
	if matches(t, full, "a:"+strings.Repeat("x", urimatch.MaxURI-1)) {
		t.Error("a URI that is too long matches")
	}
}

// matches reports whether a URI can come from a template.
func matches(t *testing.T, template, uri string) bool {
	t.Helper()
	compiled, err := urimatch.Compile(template)
	if err != nil {
		t.Fatal(err)
	}
	var x urimatch.Index[bool]
	x.Add(compiled, true)
	x.Sort()
	_, ok := x.Find(uri)
	return ok
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
		{"a:{x}0", "a:%20", false},
		{"a:{x}", "a:%2", false},
		{"a:{x}", "a:%20", true},
		{"a:{x}%20{y}", "a:b%20c", true},
		{"a:{x}=c", "a:b=c", true},
		{"a:{x*}", "a:b=c,d=e", true},
		{"a:{x,y*}", "a:b=c", false},
		{"a{/x,y}", "a/b/c", true},
		{"a{/x,y}", "a/b/c/d", false},
		{"a{/x*}", "a/b/c/d", true},
		{"a{#x}", "a#b/c?d", true},
		{"a{?x}{&y}", "a?x=1&y=2", true},
		{"a{;x}", "a?x=1", false},
		{"a:{x}é{y}", "a:béc", true},
		{"a:{+x}b", "a:" + strings.Repeat("a", 300) + "b", true},
		{"a:{x}b", "a:" + strings.Repeat("a", 300) + "/b", false},
		{"a:{x}b{y}", "a:" + strings.Repeat("a", 61) + "%62" + strings.Repeat("a", 61) + "%6b", false},
		{"a:{x}b{y}", "a:" + strings.Repeat("a", 61) + "b" + strings.Repeat("a", 60) + "%6b", true},
	} {
		if got := matches(t, test.template, test.uri); got != test.want {
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

// SPEC S2: no URI and no templates make a Find cost more than some hundred times what an
// ordinary one does.
func TestS2AFindIsCheap(t *testing.T) {
	ordinary := find(t, "git://h/a/b/tree/"+strings.Repeat("c/", 20), []string{"git://h/{owner}/{repo}/tree/{+path}", "git://h/{owner}/{repo}/{kind}/{n}"})
	for name, c := range costliest() {
		for _, n := range []int{400, 1000, 8000} {
			took := find(t, c.uri(n), c.templates)
			if took > 1000*ordinary {
				t.Errorf("%s, a URI of %d bytes: %v; an ordinary Find takes %v", name, n, took, ordinary)
			}
		}
	}
}

// costly are templates of one capsule, and URIs that are compared with them for long.
type costly struct {
	repeated  string // what the URIs are made of
	templates []string
}

func (c costly) uri(n int) string { return "flap://h/" + strings.Repeat(c.repeated, n) + "%" }

// costliest are the templates that cost the most.
func costliest() map[string]costly {
	variables, separators, literals := costly{repeated: "x"}, costly{repeated: "/"}, costly{repeated: "x"}
	for i := range 256 {
		var text strings.Builder
		for k := range urimatch.MaxVariables - 1 {
			fmt.Fprintf(&text, "{v%d}%s", k, "xx"[:1+i>>(k%8)&1])
		}
		variables.templates = append(variables.templates, "flap://h/"+text.String()+"{z}")
		separators.templates = append(separators.templates, fmt.Sprintf("flap://h/{/%sa}{?x:%d}", strings.Repeat("a,", 29), i+1))
		literals.templates = append(literals.templates, "flap://h/"+strings.Repeat("x", 400+i)+"{a}"+strings.Repeat("x", 300)+"{b}{c}")
	}
	return map[string]costly{"variables": variables, "separators": separators, "literals": literals}
}

// find returns the CPU time of a Find, the quickest of some.
func find(t *testing.T, uri string, templates []string) time.Duration {
	t.Helper()
	var x urimatch.Index[int]
	for i, text := range templates {
		compiled, err := urimatch.Compile(text)
		if err != nil {
			t.Fatal(err)
		}
		x.Add(compiled, i)
	}
	x.Sort()
	turns := 1
	for costtest.Measure(func() { x.Find(uri) }, turns).CPU < 2*time.Millisecond {
		turns *= 4
	}
	quickest := time.Hour
	for range 5 {
		quickest = min(quickest, costtest.Measure(func() { x.Find(uri) }, turns).CPU/time.Duration(turns))
	}
	return quickest
}
