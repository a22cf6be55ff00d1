package simple

import (
	"encoding/json"
	"slices"
	"text/template/parse"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/manifest"
)

// maxUsed bounds the values in the arguments that templates use: no loop visits more, and they would
// not fit into a command line.
const maxUsed = 100_000

// uses says which arguments of a call a template can use.
type uses struct {
	names map[string]bool
	all   bool
}

// usesOf examines a template. Nested templates know only the value that they are called with.
func usesOf(trees map[string]*parse.Tree) uses {
	u := uses{names: map[string]bool{}}
	if tree := trees[manifest.TemplateName]; tree != nil {
		u.look(tree.Root, true)
	}
	return u
}

// look examines a node. outside says that the dot is the object of all arguments there; inside a
// range or a with it is another value.
func (u *uses) look(node parse.Node, outside bool) {
	switch n := node.(type) {
	case *parse.ListNode:
		if n == nil {
			return
		}
		for _, one := range n.Nodes {
			u.look(one, outside)
		}
	case *parse.ActionNode:
		u.look(n.Pipe, outside)
	case *parse.TemplateNode:
		u.look(n.Pipe, outside)
	case *parse.IfNode:
		u.branch(&n.BranchNode, outside, outside)
	case *parse.WithNode:
		u.branch(&n.BranchNode, outside, false)
	case *parse.RangeNode:
		u.branch(&n.BranchNode, outside, false)
	case *parse.PipeNode:
		if n == nil {
			return
		}
		for _, command := range n.Cmds {
			for _, arg := range command.Args {
				u.look(arg, outside)
			}
		}
	case *parse.ChainNode:
		u.look(n.Node, outside)
	case *parse.DotNode:
		u.all = u.all || outside
	case *parse.FieldNode:
		if outside {
			u.names[n.Ident[0]] = true
		}
	case *parse.VariableNode:
		switch {
		case n.Ident[0] != "$": // its value was examined where it was set
		case len(n.Ident) == 1:
			u.all = true
		default:
			u.names[n.Ident[1]] = true
		}
	}
}

func (u *uses) branch(n *parse.BranchNode, outside, inside bool) {
	u.look(n.Pipe, outside)
	u.look(n.List, inside)
	u.look(n.ElseList, outside)
}

// used are the arguments that templates can use, not decoded yet.
type used struct {
	members map[string]json.RawMessage
	values  int
	cost    int64 // roughly how many bytes they take when decoded
}

// used finds the arguments that the command's templates can use. It does not decode the others.
func (c *cli) used(args json.RawMessage) (used, error) {
	found := used{members: map[string]json.RawMessage{}}
	if none(args) {
		return found, nil
	}
	err := eachMember(args, func(key string, value json.RawMessage) bool {
		if c.uses(key) {
			found.values += rawjson.Values(value)
			found.cost += int64(len(key)) + rawjson.Weight(value)
			found.members[key] = value
		}
		return found.values <= maxUsed
	})
	switch {
	case err != nil:
		return used{}, fault.New(fault.InvalidInput, "arguments: want a JSON object")
	case found.values > maxUsed:
		return used{}, fault.New(fault.InvalidInput, "arguments: those that the command uses have more than %d values; send fewer", maxUsed)
	}
	return found, nil
}

// uses reports whether a template can use an argument.
func (c *cli) uses(name string) bool {
	return slices.ContainsFunc(c.arguments, func(a argument) bool { return a.uses.all || a.uses.names[name] })
}

// decoded returns the arguments in the form that templates get.
func (u used) decoded() (map[string]any, error) {
	object := make(map[string]any, len(u.members))
	for key, raw := range u.members {
		value, err := rawjson.Decode(raw)
		if err != nil {
			return nil, fault.New(fault.InvalidInput, "arguments: want a JSON object")
		}
		object[key] = plain(value)
	}
	return object, nil
}
