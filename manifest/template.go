package manifest

import (
	"errors"
	"fmt"
	"strings"
	"text/template/parse"
)

// maxTemplate is how long the template of one argument may be: half of what all
// arguments of a command may take together.
const maxTemplate = 64 << 10

// templateFunctions are those that text/template has by itself.
var templateFunctions = map[string]any{
	"and": true, "call": true, "html": true, "index": true, "slice": true, "js": true, "len": true, "not": true, "or": true, "print": true,
	"printf": true, "println": true, "urlquery": true, "eq": true, "ge": true, "gt": true, "le": true, "lt": true, "ne": true,
}

// ParseTemplate parses the template of one argument of a command (SPEC-TOOLS
// 3.6): a Go text/template with the functions that text/template has by itself,
// and no others. The trees are those that it and its {{define}}s are, by their
// names; its own is TemplateName. They are the caller's.
func ParseTemplate(text string) (map[string]*parse.Tree, error) {
	switch {
	case strings.ContainsRune(text, 0):
		return nil, errors.New("must not hold a NUL byte")
	case len(text) > maxTemplate:
		return nil, fmt.Errorf("must have at most %d bytes, has %d", maxTemplate, len(text))
	}
	trees, err := parse.Parse(TemplateName, text, "", "", templateFunctions)
	if err != nil {
		_, reason, _ := strings.Cut(err.Error(), "template: "+TemplateName+":")
		return nil, errors.New("is not a Go template: line " + reason)
	}
	return trees, nil
}

// TemplateName is what the template of an argument is called in its own errors.
const TemplateName = "arg"
