package simple

import (
	"context"
	"encoding/json"
	"fmt"
	"text/template"
	"text/template/parse"

	"github.com/orla-project/orla/manifest"
)

// Names of functions that templates cannot use: the oracle adds them to pipelines that are printed.
const (
	valueName = "_value"
	ownName   = "_own"
)

// RenderByTextTemplate is Render with text/template as the evaluator, for a template of one argument. It
// bounds nothing.
func RenderByTextTemplate(ctx context.Context, text string, args json.RawMessage) (argv []string, err error) {
	trees, err := manifest.ParseTemplate(text)
	if err != nil {
		return nil, fmt.Errorf("args[0]: %w", err)
	}
	c := cli{CLI: manifest.CLI{Command: "command"}, arguments: []argument{{trees: trees, uses: uses{all: true}}}}
	used, err := c.used(args)
	if err != nil {
		return nil, err
	}
	values, err := used.decoded()
	if err != nil {
		return nil, err
	}
	w := work{ctx: ctx}
	r := rendering{work: &w, room: maxArgv}
	t := template.New(manifest.TemplateName).Funcs(r.textTemplateFunctions())
	for name, tree := range trees {
		markPrinted(tree.Root)
		if _, err := t.AddParseTree(name, tree); err != nil {
			return nil, err
		}
	}
	if err := t.Execute(&r, values); err != nil {
		return nil, refusal(ctx, 0, err)
	}
	if r.out.Len() == 0 {
		return nil, nil
	}
	return []string{r.out.String()}, nil
}

// textTemplateFunctions are those that Orla has in place of text/template's, and those of markPrinted.
func (r *rendering) textTemplateFunctions() template.FuncMap {
	own := func(name string) func(args ...any) (any, error) {
		return func(args ...any) (any, error) { return functions[name].do(r, args) }
	}
	all := template.FuncMap{
		valueName: r.value, ownName: textOf,
		"printf": func(format string, args ...any) (any, error) { return r.printf(append([]any{format}, args...)) },
	}
	for _, name := range []string{"print", "println", "html", "js", "urlquery"} {
		all[name] = own(name)
	}
	return all
}

// markPrinted appends a function to each pipeline that is printed, which formats the value.
func markPrinted(node parse.Node) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, one := range n.Nodes {
			markPrinted(one)
		}
	case *parse.ActionNode:
		if len(n.Pipe.Decl) == 0 { // else nothing is printed
			name := valueName
			if saysItself(n.Pipe) {
				name = ownName
			}
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(name).SetPos(n.Pos)}})
		}
	case *parse.IfNode:
		markPrinted(n.List)
		markPrinted(n.ElseList)
	case *parse.WithNode:
		markPrinted(n.List)
		markPrinted(n.ElseList)
	case *parse.RangeNode:
		markPrinted(n.List)
		markPrinted(n.ElseList)
	}
}
