package schema

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxPatterns is how many instructions all the patterns of a schema may have.
// A short one such as a{1000} has as many as it counts to, each of which costs
// memory for as long as the tool is served, and time at each character that is
// checked.
const maxPatterns = 50_000

var errTooLarge = errors.New("too large")

// patterns compiles the regular expressions of one schema.
type patterns struct {
	spent int
	known map[string]*pattern
}

// pattern is a regular expression and the number of its instructions.
type pattern struct {
	*regexp.Regexp
	size int
}

// maxPattern bounds a text that is to be a regular expression, in bytes.
const maxPattern = 4 << 10

// compiles reports whether a text is a regular expression.
func compiles(text string) bool {
	_, err := syntax.Parse(text, syntax.Perl)
	return err == nil
}

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if re, ok := p.known[text]; ok {
		return re, nil
	}
	if p.spent > maxPatterns {
		return nil, errTooLarge
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	if p.spent += len(program.Inst); p.spent > maxPatterns {
		return nil, errTooLarge
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p.known[text] = &pattern{re, len(program.Inst)}
	return p.known[text], nil
}
