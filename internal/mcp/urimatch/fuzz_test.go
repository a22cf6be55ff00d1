package urimatch_test

import (
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/yosida95/uritemplate/v3"

	"github.com/orla-project/orla/internal/mcp/urimatch"
)

// compare checks that a URI matches a template if and only if it matches the template's
// regular expression.
func compare(t *testing.T, template, uri string) (matched bool) {
	t.Helper()
	compiled, err := urimatch.Compile(template)
	if err != nil {
		return false
	}
	pattern := patternOf(template)
	if pattern == nil {
		return false
	}
	var x urimatch.Index[bool]
	x.Add(compiled, true)
	x.Sort()
	_, got := x.Find(uri)
	if want := len(uri) <= urimatch.MaxURI && pattern.MatchString(uri); got != want {
		t.Errorf("the URI %q matches the template %q: %v; want %v", uri, template, got, want)
	}
	return got
}

func patternOf(template string) (pattern *regexp.Regexp) {
	defer func() { _ = recover() }() // the library panics for some
	parsed, err := uritemplate.New(template)
	if err != nil {
		return nil
	}
	return parsed.Regexp()
}

// A URI matches the same templates as with the regular expressions of the library.
func TestMatchesAsTheLibraryDoes(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	matched := 0
	const turns = 10_000
	for range turns {
		var template, uri strings.Builder
		for range 1 + random.IntN(5) {
			if random.IntN(2) == 0 {
				template.WriteString(pick("a", "b", "ab", "/", "?", "&", ",", "=", "%20", ".", "a/b", ";", "#", "é"))
				continue
			}
			template.WriteString("{" + pick("", "", "+", "#", ".", "/", ";", "?", "&"))
			for i := range 1 + random.IntN(3) {
				if i > 0 {
					template.WriteString(",")
				}
				template.WriteString(pick("x", "x", "x*", "x:3"))
			}
			template.WriteString("}")
		}
		if random.IntN(4) == 0 {
			uri.WriteString(strings.Repeat(pick("a", "ab", "%20", "/b"), random.IntN(70)))
		}
		for range random.IntN(12) {
			uri.WriteString(pick("a", "b", "a", "b", "/", "?", "&", ",", "=", "%20", "%", "2", ".", ";", "#", "é"))
		}
		for _, text := range []string{uri.String(), fill(template.String(), uri.String(), random)} {
			if compare(t, template.String(), text) {
				matched++
			}
		}
		if t.Failed() {
			return
		}
	}
	if matched < turns/10 {
		t.Errorf("%d of %d URIs match; the test is to compare more", matched, 2*turns)
	}
}

// fill puts parts of a text in place of the expressions of a template.
func fill(template, text string, random *rand.Rand) string {
	var uri strings.Builder
	for {
		literal, rest, open := strings.Cut(template, "{")
		uri.WriteString(literal)
		if !open {
			return uri.String()
		}
		inside, after, _ := strings.Cut(rest, "}")
		if strings.IndexAny(inside, "#./;?&") == 0 && random.IntN(4) > 0 {
			uri.WriteByte(inside[0])
		}
		from := random.IntN(len(text) + 1)
		uri.WriteString(text[from : from+random.IntN(len(text)-from+1)])
		template = after
	}
}

func FuzzMatches(f *testing.F) {
	f.Add("a:{x}/{+y}{?q,r*}", "a:b/c/d?q=%20&r=2")
	f.Add("a{/x,y}{;z}{#f}", "a/b/c;z=1#f")
	f.Add("a{.x,y*}%20{&z}", "a.b.c%20&z=")
	f.Fuzz(func(t *testing.T, template, uri string) { compare(t, template, uri) })
}
