// Package urimatch finds the resource template that a URI comes from.
//
// A template is compiled once. What it may cost is bounded, since it is written by
// a stranger. An Index looks only at the templates whose literal beginning the URI has.
package urimatch

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/yosida95/uritemplate/v3"
)

const (
	// MaxLength is the most bytes that a template may have.
	MaxLength = 1 << 10
	// MaxVariables is the most variables that a template may have.
	MaxVariables = 32
	// MaxURI is the most bytes of a URI that is compared with templates.
	MaxURI = 8 << 10
)

// Template is a compiled template. It is never changed.
type Template struct {
	// Form is the template without the names of its variables. Two templates of one
	// form match the same URIs.
	Form string

	prefix, suffix string // the literal text before the first expression, and after the last
	literals       int    // how many bytes are literal
	wide           int    // how many expressions match reserved characters too
	pattern        *regexp.Regexp
}

// Compile compiles a template (RFC 6570). It refuses one that exceeds the bounds.
func Compile(text string) (t *Template, err error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("a URI template may have %d bytes at most", MaxLength)
	}
	if variables(text) > MaxVariables {
		return nil, fmt.Errorf("a URI template may have %d variables at most: %.100q", MaxVariables, text)
	}
	defer func() { // the library panics when it cannot compile what it has made of a template
		if p := recover(); p != nil {
			t, err = nil, fmt.Errorf("the URI template %.100q cannot be compiled: %v", text, p)
		}
	}()
	parsed, err := uritemplate.New(text)
	if err != nil {
		return nil, fmt.Errorf("%.100q is not a URI template: %w", text, err)
	}
	t = &Template{pattern: parsed.Regexp()}
	t.read(text)
	return t, nil
}

// variables counts the variables of a template.
func variables(text string) (n int) {
	for {
		_, rest, open := strings.Cut(text, "{")
		inside, after, closed := strings.Cut(rest, "}")
		if !open || !closed {
			return n
		}
		n += 1 + strings.Count(inside, ",")
		text = after
	}
}

// read takes from a valid template what is compared without its pattern.
func (t *Template) read(text string) {
	var form strings.Builder
	literal, rest, _ := strings.Cut(text, "{")
	t.prefix = literal
	for {
		t.literals += len(literal)
		form.WriteString(literal)
		inside, after, is := strings.Cut(rest, "}")
		if !is {
			break
		}
		if strings.IndexAny(inside, "+#") == 0 {
			t.wide++
		}
		form.WriteByte('{')
		for i, c := range inside {
			switch {
			case i == 0 && strings.ContainsRune("+#./;?&", c), c == ',', c == '*':
				form.WriteRune(c)
			}
		}
		form.WriteByte('}')
		literal, rest, _ = strings.Cut(after, "{")
	}
	t.suffix = literal
	if t.prefix == text { // there is no expression
		t.suffix = ""
	}
	t.Form = form.String()
}

// Prefix is the text that all URIs of the template begin with.
func (t *Template) Prefix() string { return t.prefix }

// Matches reports whether a URI can come from the template.
func (t *Template) Matches(uri string) bool {
	return len(uri) <= MaxURI && len(uri) >= t.literals && strings.HasPrefix(uri, t.prefix) && strings.HasSuffix(uri, t.suffix) && t.pattern.MatchString(uri)
}
