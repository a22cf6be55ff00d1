// Package urimatch finds the resource template that a URI comes from.
//
// A template is compiled once. A URI is compared with it in steps that each take all
// positions of the URI at once, so that no template costs much more than reading it.
// An Index looks only at the templates whose literal beginning the URI has.
package urimatch

import (
	"fmt"
	"strings"

	"github.com/yosida95/uritemplate/v3"
)

const (
	// maxLength is the most bytes that a template may have.
	maxLength = 1 << 10
	// maxVariables is the most variables that a template may have.
	maxVariables = 32
	// maxURI is the most bytes of a URI that is compared with templates.
	maxURI = 8 << 10
)

// Template is a compiled template. It is never changed.
type Template struct {
	// Form is the template without the names of its variables. Two templates of one
	// form match the same URIs.
	Form string

	prefix, suffix string // the literal text before the first expression, and after the last
	literals       int    // how many bytes are literal
	wide           int    // how many expressions match reserved characters too
	parts          []part // what is between prefix and suffix
}

// part is an expression and the literal text before it.
type part struct {
	literal string
	expression
}

// expression is what an expression of a template may expand to: first, if it has one, then
// characters of head, then up to more times sep and characters of tail. Or nothing.
type expression struct {
	first, sep byte // first is 0 if there is none
	head, tail class
	more       int // unbounded if any of its variables is exploded
}

const unbounded = -1

// Compile compiles a template (RFC 6570). It refuses one that exceeds the bounds.
func Compile(text string) (*Template, error) {
	if len(text) > maxLength {
		return nil, fmt.Errorf("a URI template may have %d bytes at most", maxLength)
	}
	if variables(text) > maxVariables {
		return nil, fmt.Errorf("a URI template may have %d variables at most: %.100q", maxVariables, text)
	}
	if _, err := uritemplate.New(text); err != nil {
		return nil, fmt.Errorf("%.100q is not a URI template: %w", text, err)
	}
	t := &Template{}
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

// read fills in a valid template.
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
		if len(t.parts) == 0 {
			literal = "" // it is the prefix
		}
		t.parts = append(t.parts, part{literal, parse(inside)})
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
	if len(t.parts) == 0 {
		t.suffix = ""
	}
	t.Form = form.String()
}

// parse reads what is between the braces of a valid expression.
func parse(inside string) expression {
	e := expression{sep: ','}
	named, wide := false, false
	switch op := inside[0]; op {
	case '+':
		wide = true
	case '#':
		e.first, wide = op, true
	case '.', '/':
		e.first, e.sep = op, op
	case ';':
		e.first, e.sep, named = op, op, true
	case '?', '&':
		e.first, e.sep, named = op, '&', true
	}
	of := func(equals bool) class {
		switch {
		case wide:
			return reserved
		case equals:
			return assigning
		}
		return unreserved
	}
	vars := strings.Split(inside, ",")
	exploded := strings.Contains(inside, "*")
	e.head, e.tail = of(named || strings.HasSuffix(vars[0], "*")), of(named || exploded)
	if e.more = len(vars) - 1; exploded && (e.more > 0 || strings.HasSuffix(vars[0], "*")) {
		e.more = unbounded
	}
	if e.head == e.tail && classesOf[e.sep]&(1<<e.head) != 0 {
		e.more = 0 // head has all that would follow
	}
	return e
}

// Prefix is the text that all URIs of the template begin with.
func (t *Template) Prefix() string { return t.prefix }

// encloses reports whether a URI begins and ends as those of the template do.
func (t *Template) encloses(uri string) bool {
	return len(uri) >= t.literals && strings.HasPrefix(uri, t.prefix) && strings.HasSuffix(uri, t.suffix)
}
