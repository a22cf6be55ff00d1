package schema

import (
	"errors"
	"regexp"
	"regexp/syntax"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxPatterns is how many instructions all the patterns of a schema may have.
// A short one such as a{1000} has as many as it counts to, each of which costs
// memory while it is kept, and time at each character that is checked. Eight ranges of
// characters count as one: \p{L} has hundreds, each time.
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
	if p.spent += costOf(tree); p.spent > maxPatterns { // before it is compiled
		return nil, errTooLarge
	}
	program, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p.known[text] = &pattern{re, len(program.Inst)}
	return p.known[text], nil
}

// costOf is how many instructions a tree has when it is compiled, more or less, and the
// ranges of its characters.
func costOf(tree *syntax.Regexp) int {
	const rangesOfOne = 8
	cost := 1
	for _, part := range tree.Sub {
		cost += costOf(part)
	}
	switch tree.Op {
	case syntax.OpLiteral:
		return len(tree.Rune)
	case syntax.OpCharClass:
		return cost + len(tree.Rune)/2/rangesOfOne
	case syntax.OpRepeat:
		return cost * max(1, tree.Min, tree.Max)
	default:
		return cost
	}
}
