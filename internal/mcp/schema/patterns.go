package schema

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode/utf8"

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

// compiles reports whether a text is a regular expression, and one that is not dear to parse.
func compiles(text string) bool {
	if costToParse(text) > maxParsed {
		return false
	}
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
	if p.spent += costToParse(text); p.spent > maxPatterns {
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

const (
	// maxParsed bounds what a value that is to be a regular expression may cost to parse.
	maxParsed = 10_000
	// stepsToParse is how many steps of a check one of these instructions is.
	stepsToParse = 50
	// namedClass is what it costs to read a class such as \p{L}, in instructions: the parser keeps
	// its hundreds of ranges each time that a class in brackets names it.
	namedClass = 100
	// letters is what it costs to read a class such as \w without regard to case, for each letter of which the parser
	// looks for the other case.
	letters = 2
	// Of a range in a pattern without regard to case, the parser looks for the other cases of each character up
	// to lastFolded, the last one that has any: foldedAtOnce of them cost as much as one instruction.
	lastFolded   = 0x1e943
	foldedAtOnce = 50
)

// costToParse is how much more it costs to parse a pattern than its length says, in instructions.
func costToParse(text string) int {
	cost := namedClass * (strings.Count(text, `\p`) + strings.Count(text, `\P`))
	if !folds(text) {
		return cost
	}
	cost = 4*cost + letters*(strings.Count(text, `\w`)+strings.Count(text, `\W`)+strings.Count(text, "[:"))
	for rest := text; ; {
		_, after, found := strings.Cut(rest, "-")
		if !found {
			return cost
		}
		cost += int(min(firstOf(after), lastFolded)) / foldedAtOnce
		rest = after
	}
}

// firstOf returns the character that a part of a pattern begins with, also in hexadecimal digits.
func firstOf(text string) rune {
	const (
		most     = len("10ffff}") // no more is looked at, since this is done for each - of a pattern
		maxShort = 0xff           // of other escapes, which have two or three digits
	)
	c, _ := utf8.DecodeRuneInString(text)
	if escaped, is := strings.CutPrefix(text, `\x{`); is {
		escaped = strings.TrimLeft(escaped, "0")
		digits, _, ends := strings.Cut(escaped[:min(len(escaped), most)], "}")
		if n, err := strconv.ParseUint(digits, 16, 31); ends && err == nil {
			return rune(n)
		}
	}
	if c == '\\' {
		return maxShort
	}
	return c
}

// folds reports whether a part of a pattern may be without regard to case.
func folds(text string) bool {
	for {
		_, rest, found := strings.Cut(text, "(?")
		if !found {
			return false
		}
		text = strings.TrimLeft(rest, "imsU-")
		if strings.Contains(rest[:len(rest)-len(text)], "i") {
			return true
		}
	}
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
