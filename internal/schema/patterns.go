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
	known map[string]*regexp.Regexp
}

func (p *patterns) compile(pattern string) (jsonschema.Regexp, error) {
	if re, ok := p.known[pattern]; ok {
		return re, nil
	}
	if p.spent > maxPatterns {
		return nil, errTooLarge
	}
	tree, err := syntax.Parse(pattern, syntax.Perl)
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
	re, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	p.known[pattern] = re
	return re, nil
}
