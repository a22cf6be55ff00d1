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
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

const (
	// maxArgv bounds the whole command line of a tool of type cli, in bytes (SPEC-TOOLS 3.6).
	maxArgv = 128 << 10
	// maxSteps bounds the rounds of all loops of one argument, and maxNested its nested templates, each
	// of which takes stack space while it runs.
	maxSteps  = 100_000
	maxNested = 1000
	// maxMade bounds the output of all functions of one argument, and so their time. Variables may keep it.
	maxMade = 4 << 20
)

// Names of functions that templates cannot use: rewrite adds them to the parsed templates.
const (
	stepName  = "_step"  // called at the start of a loop's round, or of a nested template
	nestName  = "_nest"  // called at the start of a nested template
	valueName = "_value" // last function of each pipeline whose result is printed
	ownName   = "_own"   // the same, for a result that begins with a - of the template's own
)

// argument is one argument of a command.
type argument struct {
	literal string                 // its constant value, if trees is nil
	trees   map[string]*parse.Tree // the rewritten template; read-only
	uses    uses
}

// argumentsOf parses the templates of a command, in order.
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

// rewrite appends a function to each pipeline that is printed, which formats the value, and prepends
// one to each round of a loop, which counts it.
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
		if len(n.Pipe.Decl) == 0 { // else nothing is printed
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

// saysItself reports whether the result of a pipeline begins with a - that the template wrote:
// {{"--all"}}, {{printf "--n=%v" .n}}.
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

// render makes the arguments of one call (SPEC-TOOLS 3.6): one for each template, or none if its
// output is empty. values is the result of used.decoded. An error is invalid_input, and contains no
// value of the call.
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
	errTooLarge = fmt.Errorf("template error: its functions make more than %d bytes", maxMade)
)

// refusal is the error for an argument that cannot be made.
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
	f.Logged = fmt.Sprintf("cli.args[%d] cannot be made of the arguments", i) // the message may quote values (SPEC I2)
	return f
}

// rendering is one execution of a template.
type rendering struct {
	over   func() error // returns the reason if it has to end
	out    bytes.Buffer
	room   int  // bytes left for the command line
	ended  bool // a -- precedes it: no argument is an option any more
	vacant bool // the value at the start is empty
	below  bool // the value at the start is a negative number
	steps  int
	nested int
	total  int // bytes that functions have made, which variables may keep
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

// Write receives the output of the template.
func (r *rendering) Write(p []byte) (int, error) {
	switch {
	case len(p) > r.room-r.out.Len():
		return 0, errTooLong
	case bytes.IndexByte(p, 0) >= 0:
		return 0, errNUL
	case r.vacant && r.out.Len() == 0 && bytes.HasPrefix(p, []byte("-")) && !r.ended:
		return 0, errOption // {{.a}}-b without a: the - was not meant to come first
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

// value returns the text of a value that is about to be printed. A value at the start of an argument
// must not make it an option.
func (r *rendering) value(v any) (string, error) {
	text := textOf(v)
	switch {
	case r.ended || text == "" || isNumber(v) && r.out.Len() > 0:
	case r.below: // -5 is a value, but -5x may be an option
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

// isNumber reports whether a value is a number; a negative one is still a value and not an option.
func isNumber(v any) bool {
	switch v.(type) {
	case json.Number, int, int64, float64:
		return true
	}
	return false
}

func (r *rendering) own(v any) string { return textOf(v) }

// made calls a function that formats its arguments, unless its output might be too long.
func (r *rendering) made(args []any, write func() string) (string, error) {
	const each = 8 // how many bytes one byte may become: \u2028, &#34;, %e2%80%a8
	size := 0
	for _, arg := range args {
		if size += each * lengthOf(arg); size > maxMade {
			return "", errTooLarge
		}
	}
	return r.keep(write())
}

// keep counts what a function has made.
func (r *rendering) keep(text string) (string, error) {
	if r.total += len(text); r.total > maxMade {
		return "", errTooLarge
	}
	return text, r.over()
}

// printf is fmt.Sprintf with a bound for its output, which is checked before: the format may be a
// value of the call.
func (r *rendering) printf(format string, args ...any) (string, error) {
	const each = 12 // how many bytes one byte may become, with %+q or % #x
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
		// This treats width, precision and argument indexes alike.
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
	return r.keep(fmt.Sprintf(format, shown(args)...))
}

// lengthOf returns roughly how long a value is as text.
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

// shown converts the arguments of print and the like, so that Go's formatting does not show in them.
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

// textOf returns a value as an argument has it: a missing value is empty, an object or an array is
// compact JSON, and anything else is as it was written.
func textOf(v any) string {
	switch v := v.(type) {
	case nil, null:
		return ""
	case string:
		return v
	case map[string]any, []any:
		out, _ := rawjson.Encode(v) // it was decoded from JSON
		return string(out)
	default:
		return fmt.Sprint(v)
	}
}

// null is JSON's null. As an empty map it behaves in templates like a missing value: it has no
// members, is false, and a range over it has no rounds.
type null map[string]any

// MarshalJSON returns null.
func (null) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// plain converts numbers to Go's types if they print with the same digits, so that templates can
// compare and count with them.
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
