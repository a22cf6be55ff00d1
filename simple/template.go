package simple

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxArgv bounds the whole command line of type cli (SPEC-TOOLS 3.6).
	maxArgv = 128 << 10
	// maxSteps bounds the rounds of all loops of one argument, and maxNested the
	// templates that it calls: each takes room on the stack while it runs.
	maxSteps  = 100_000
	maxNested = 1000
	// maxMade bounds what one function of a template makes, and so what it may take.
	maxMade = 4 << 20
)

// The names of functions that templates cannot know: they are put into the parsed ones.
const (
	stepName  = "_step"  // stands where a round of a loop, or a nested template, begins
	nestName  = "_nest"  // the same for a nested template
	valueName = "_value" // ends each pipeline whose result is printed
	ownName   = "_own"   // the same where the template itself says how the result begins
)

// argument is one argument of a command, as its template makes it.
type argument struct {
	literal string                 // what it always is, where trees is nil
	trees   map[string]*parse.Tree // rewritten; read-only
	uses    uses
}

// argumentsOf parses templates, which are in order.
func argumentsOf(templates []string) ([]argument, error) {
	list := make([]argument, 0, len(templates))
	for i, text := range templates {
		trees, err := manifest.ParseTemplate(text)
		if err != nil {
			return nil, fmt.Errorf("args[%d]: %w", i, err)
		}
		if !strings.Contains(text, "{{") {
			list = append(list, argument{literal: text})
			continue
		}
		used := usesOf(trees)
		for name, tree := range trees {
			rewrite(tree.Root)
			if name != manifest.TemplateName {
				tree.Root.Nodes = slices.Insert(tree.Root.Nodes, 0, parse.Node(action(tree, nestName)))
			}
		}
		list = append(list, argument{trees: trees, uses: used})
	}
	return list, nil
}

// rewrite has every pipeline that is printed end in one of our functions, which
// says how a value looks, and every round of a loop begin with another, which
// counts it.
func rewrite(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, one := range n.Nodes {
			rewrite(one)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 { // else it prints nothing
			name := valueName
			if saysItself(n.Pipe) {
				name = ownName
			}
			n.Pipe.Cmds = append(n.Pipe.Cmds, call(name, n.Pos))
		}
	case *parse.IfNode:
		rewriteBranch(&n.BranchNode)
	case *parse.WithNode:
		rewriteBranch(&n.BranchNode)
	case *parse.RangeNode:
		rewriteBranch(&n.BranchNode)
		n.List.Nodes = slices.Insert(n.List.Nodes, 0, parse.Node(actionAt(n.Pos, n.Line, stepName)))
	}
}

func rewriteBranch(n *parse.BranchNode) {
	rewrite(n.List)
	rewrite(n.ElseList)
}

func action(tree *parse.Tree, name string) *parse.ActionNode {
	return actionAt(tree.Root.Pos, 1, name)
}

func actionAt(pos parse.Pos, line int, name string) *parse.ActionNode {
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Line: line, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: pos, Line: line, Cmds: []*parse.CommandNode{call(name, pos)},
	}}
}

// call is a command that calls a function.
func call(name string, pos parse.Pos) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Pos: pos, Args: []parse.Node{parse.NewIdentifier(name).SetPos(pos)}}
}

// saysItself reports whether a pipeline's result begins with a - of the template's
// own: {{"--all"}}, {{printf "--n=%v" .n}}.
func saysItself(pipe *parse.PipeNode) bool {
	if len(pipe.Cmds) != 1 {
		return false
	}
	args := pipe.Cmds[0].Args
	if name, ok := args[0].(*parse.IdentifierNode); ok && len(args) > 1 && (name.Ident == "printf" || name.Ident == "print") {
		args = args[1:]
	}
	switch first := args[0].(type) {
	case *parse.StringNode:
		return strings.HasPrefix(first.Text, "-")
	case *parse.NumberNode:
		return strings.HasPrefix(first.Text, "-")
	}
	return false
}

// render makes the arguments of one call (SPEC-TOOLS 3.6): each template makes one,
// or none if it comes out empty. values are what used.decoded returns. An error
// is invalid_input, and repeats no value.
func (c *cli) render(ctx context.Context, values any) ([]string, error) {
	var argv []string
	room, ended := maxArgv-len(c.Command)-1, false
	for i, a := range c.arguments {
		text := a.literal
		if a.trees != nil {
			r := rendering{over: ctx.Err, room: room, ended: ended}
			if err := r.run(a.trees, values); err != nil {
				return nil, refusal(ctx, i, err)
			}
			text = r.out.String()
		}
		if text == "" {
			continue
		}
		ended = ended || a.trees == nil && text == "--"
		if room -= len(text) + 1; room < 0 {
			return nil, refusal(ctx, i, errTooLong)
		}
		argv = append(argv, text)
	}
	return argv, nil
}

var (
	errTooLong  = fmt.Errorf("the command line has more than %d bytes", maxArgv)
	errOption   = errors.New("it would begin with a - that a value brings, and so be an option; where that is meant, the tool can take it as --name=VALUE, or after an argument --")
	errNUL      = errors.New("a value holds a NUL byte, which no argument can")
	errSteps    = fmt.Errorf("template error: its loops go round more than %d times", maxSteps)
	errNested   = fmt.Errorf("template error: it calls templates more than %d times", maxNested)
	errTooLarge = fmt.Errorf("template error: a function makes more than %d bytes", maxMade)
)

// refusal is the fault of an argument that cannot be made.
func refusal(ctx context.Context, i int, err error) error {
	if ctx.Err() != nil {
		return fault.From(context.Cause(ctx))
	}
	reason := ""
	for _, known := range []error{errTooLong, errOption, errNUL, errSteps, errNested, errTooLarge} {
		if errors.Is(err, known) {
			reason = known.Error()
		}
	}
	if reason == "" {
		const enough = 500 // it repeats a part of the template
		reason = "template error: " + brief.Cut(strings.TrimPrefix(err.Error(), "template: "+manifest.TemplateName+":"), enough)
	}
	f := fault.New(fault.InvalidInput, "cli.args[%d]: %s", i, reason)
	f.Logged = fmt.Sprintf("cli.args[%d] cannot be made of the arguments", i) // the template's words may quote them (SPEC I2)
	return f
}

// rendering is one run of a template.
type rendering struct {
	over   func() error // says why it is to end, once it is
	out    bytes.Buffer
	room   int  // bytes that are left of the command line
	ended  bool // a -- stands before: no argument is an option any more
	vacant bool // a value that was to be first is empty
	below  bool // a number below zero is first
	steps  int
	nested int
}

// run executes a template.
func (r *rendering) run(trees map[string]*parse.Tree, values any) error {
	t := template.New(manifest.TemplateName).Funcs(template.FuncMap{
		stepName: r.step, nestName: r.nest, valueName: r.value, ownName: r.own,
		"print": func(args ...any) (string, error) {
			return r.made(args, func() string { return fmt.Sprint(shown(args)...) })
		},
		"println": func(args ...any) (string, error) {
			return r.made(args, func() string { return fmt.Sprintln(shown(args)...) })
		},
		"printf": r.printf,
		"html": func(args ...any) (string, error) {
			return r.made(args, func() string { return template.HTMLEscaper(shown(args)...) })
		},
		"js": func(args ...any) (string, error) {
			return r.made(args, func() string { return template.JSEscaper(shown(args)...) })
		},
		"urlquery": func(args ...any) (string, error) {
			return r.made(args, func() string { return template.URLQueryEscaper(shown(args)...) })
		},
	})
	for name, tree := range trees {
		if _, err := t.AddParseTree(name, tree); err != nil {
			return err
		}
	}
	return t.Execute(r, values)
}

// Write takes what the template prints.
func (r *rendering) Write(p []byte) (int, error) {
	switch {
	case len(p) > r.room-r.out.Len():
		return 0, errTooLong
	case bytes.IndexByte(p, 0) >= 0:
		return 0, errNUL
	case r.vacant && r.out.Len() == 0 && bytes.HasPrefix(p, []byte("-")) && !r.ended:
		return 0, errOption // {{.a}}-b without a: the - is not meant to be the first
	}
	return r.out.Write(p)
}

func (r *rendering) step() (string, error) {
	if r.steps++; r.steps > maxSteps {
		return "", errSteps
	}
	return "", r.over()
}

func (r *rendering) nest() (string, error) {
	if r.nested++; r.nested > maxNested {
		return "", errNested
	}
	return "", r.over()
}

// value is the text of a value that is about to be printed. What is first in an
// argument must make no option of it.
func (r *rendering) value(v any) (string, error) {
	text := textOf(v)
	switch {
	case r.ended || text == "" || isNumber(v) && r.out.Len() > 0:
	case r.below: // -5 is a value, and -5x may be an option
		return "", errOption
	case r.out.Len() == 0 && strings.HasPrefix(text, "-"):
		if !isNumber(v) {
			return "", errOption
		}
		r.below, r.vacant = true, false
	}
	r.vacant = r.vacant || text == ""
	return text, nil
}

// isNumber reports whether a value is a number, which is a value also where it is
// below zero.
func isNumber(v any) bool {
	switch v.(type) {
	case json.Number, int, int64, float64:
		return true
	}
	return false
}

func (r *rendering) own(v any) string { return textOf(v) }

// made calls a function that writes its arguments, unless these are so long that
// what it writes might be too long.
func (r *rendering) made(args []any, write func() string) (string, error) {
	const each = 8 // how many bytes one may become: \u2028, &#34;, %e2%80%a8
	size := 0
	for _, arg := range args {
		if size += each * lengthOf(arg); size > maxMade {
			return "", errTooLarge
		}
	}
	return write(), r.over()
}

// printf is fmt.Sprintf, whose result is bounded before it is made: a format may
// be a value.
func (r *rendering) printf(format string, args ...any) (string, error) {
	const each = 12 // how many bytes one may become, as a part of %+q or of % #x
	longest := 0
	for _, arg := range args {
		longest = max(longest, lengthOf(arg))
	}
	size := len(format)
	for rest := format; ; {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			break
		}
		rest = strings.TrimLeft(rest[i+1:], "+-# 0")
		size += each*longest + 64
		// Width and precision, indexes of arguments taken for one.
		for digits := 0; rest != "" && strings.IndexByte("0123456789.[]*", rest[0]) >= 0; rest = rest[1:] {
			if rest[0] == '*' {
				return "", errors.New("a width * is not for templates of arguments")
			}
			if rest[0] < '0' || rest[0] > '9' {
				digits = 0
				continue
			}
			if digits = digits*10 + int(rest[0]-'0'); digits > maxMade {
				return "", errTooLarge
			}
			size += digits
		}
		if size > maxMade {
			return "", errTooLarge
		}
	}
	return fmt.Sprintf(format, shown(args)...), r.over()
}

// lengthOf is about how long a value is as text.
func lengthOf(v any) int {
	switch v := v.(type) {
	case string:
		return len(v)
	case json.Number:
		return len(v)
	case map[string]any, []any, null:
		return len(textOf(v))
	default:
		return 32 // a number or a word
	}
}

// shown is what print and its like are given: texts in place of what they would
// show as Go has it.
func shown(args []any) []any {
	list := make([]any, len(args))
	for i, arg := range args {
		switch arg.(type) {
		case map[string]any, []any, null, json.Number, nil:
			list[i] = textOf(arg)
		default:
			list[i] = arg
		}
	}
	return list
}

// textOf is a value as an argument has it: what there is not is empty, an object
// or an array is compact JSON, and anything else is as it was written.
func textOf(v any) string {
	switch v := v.(type) {
	case nil, null:
		return ""
	case string:
		return v
	case map[string]any, []any:
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			return "" // it came out of a decoder
		}
		return strings.TrimSuffix(out.String(), "\n")
	default:
		return fmt.Sprint(v)
	}
}

// null is JSON's. As an empty map it has no members, is false, and has nothing to
// go through, as what is missing has not.
type null map[string]any

// MarshalJSON writes null as it was read.
func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// plain has numbers be Go's where these print with the same digits, so that
// templates can compare and count with them.
func plain(v any) any {
	switch v := v.(type) {
	case nil:
		return null(nil)
	case map[string]any:
		for key, value := range v {
			v[key] = plain(value)
		}
	case []any:
		for i, value := range v {
			v[i] = plain(value)
		}
	case json.Number:
		text := v.String()
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && strconv.FormatInt(n, 10) == text {
			return n
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && strconv.FormatFloat(f, 'f', -1, 64) == text && fmt.Sprint(f) == text {
			return f
		}
	}
	return v
}
