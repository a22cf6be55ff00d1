package simple

import (
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// rewrite appends a function to each pipeline that is printed, which formats the value, prepends one to
// each round of a loop, which counts it, and applies one to each value that is compared.
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
		rewritePipe(n.Pipe)
		if len(n.Pipe.Decl) == 0 { // else nothing is printed
			name := valueName
			if saysItself(n.Pipe) {
				name = ownName
			}
			n.Pipe.Cmds = append(n.Pipe.Cmds, call(name, n.Pos))
		}
	case *parse.TemplateNode:
		rewritePipe(n.Pipe)
	case *parse.IfNode:
		rewriteBranch(&n.BranchNode)
	case *parse.WithNode:
		rewriteBranch(&n.BranchNode)
	case *parse.RangeNode:
		parts := partsOf(n.List)
		rewriteBranch(&n.BranchNode)
		n.List.Nodes = slices.Insert(n.List.Nodes, 0, counting(n.Pos, n.Line, stepName, parts))
	}
}

func rewriteBranch(n *parse.BranchNode) {
	rewritePipe(n.Pipe)
	rewrite(n.List)
	rewrite(n.ElseList)
}

// rewritePipe applies a function to each value that a comparison of a pipeline reads.
func rewritePipe(pipe *parse.PipeNode) {
	if pipe == nil {
		return
	}
	for _, command := range pipe.Cmds {
		name, _ := command.Args[0].(*parse.IdentifierNode)
		compares := name != nil && slices.Contains([]string{"eq", "ne", "lt", "le", "gt", "ge"}, name.Ident)
		for i, arg := range command.Args {
			if inner, ok := arg.(*parse.PipeNode); ok {
				rewritePipe(inner)
			}
			switch arg.(type) {
			case *parse.FieldNode, *parse.VariableNode, *parse.ChainNode, *parse.DotNode, *parse.PipeNode:
				if compares {
					read := call(readName, arg.Position())
					read.Args = append(read.Args, arg)
					command.Args[i] = &parse.PipeNode{NodeType: parse.NodePipe, Pos: arg.Position(), Cmds: []*parse.CommandNode{read}}
				}
			}
		}
	}
}

// partsOf returns how many nodes are evaluated at most when a node is, without the rounds of loops and
// without nested templates.
func partsOf(node parse.Node) int {
	n := 1
	switch node := node.(type) {
	case *parse.ListNode:
		if node == nil {
			return 0
		}
		for _, one := range node.Nodes {
			n += partsOf(one)
		}
	case *parse.ActionNode:
		n += partsOf(node.Pipe)
	case *parse.PipeNode:
		if node == nil {
			return 0
		}
		for _, command := range node.Cmds {
			n += partsOf(command)
		}
	case *parse.CommandNode:
		for _, arg := range node.Args {
			n += partsOf(arg)
		}
	case *parse.ChainNode:
		n += partsOf(node.Node) + len(node.Field)
	case *parse.FieldNode:
		n = len(node.Ident)
	case *parse.VariableNode:
		n = len(node.Ident)
	case *parse.IfNode:
		n += partsOf(node.Pipe) + partsOf(node.List) + partsOf(node.ElseList)
	case *parse.WithNode:
		n += partsOf(node.Pipe) + partsOf(node.List) + partsOf(node.ElseList)
	case *parse.RangeNode:
		n += partsOf(node.Pipe) + partsOf(node.ElseList)
	case *parse.TemplateNode:
		n += partsOf(node.Pipe)
	}
	return n
}

// counting is an action that calls a function with a number of parts.
func counting(pos parse.Pos, line int, name string, parts int) parse.Node {
	command := call(name, pos)
	command.Args = append(command.Args, &parse.NumberNode{
		NodeType: parse.NodeNumber, Pos: pos, IsInt: true, Int64: int64(parts), Text: strconv.Itoa(parts),
	})
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: pos, Line: line, Pipe: &parse.PipeNode{
		NodeType: parse.NodePipe, Pos: pos, Line: line, Cmds: []*parse.CommandNode{command},
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
