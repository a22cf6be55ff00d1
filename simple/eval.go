package simple

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

// evaluation executes a parsed template as text/template does, over values of JSON. text/template
// itself finds methods of values by name, and so makes the linker keep every method of the program
// (docs/decisions/0041).
type evaluation struct {
	*rendering
	trees map[string]*parse.Tree
	tree  *parse.Tree
	node  parse.Node // for errors
	vars  []variable // those declared last come last
}

type variable struct {
	name  string
	value any
}

// failure is the panic that ends an evaluation.
type failure struct{ err error }

// evaluate writes the output of a template.
func (r *rendering) evaluate(trees map[string]*parse.Tree, name string, data any) (err error) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case failure:
			err = failed.err
		default:
			panic(failed)
		}
	}()
	e := evaluation{rendering: r, trees: trees, tree: trees[name], vars: []variable{{"$", data}}}
	e.walk(data, e.tree.Root)
	return nil
}

// fail ends the evaluation with an error that says where it is.
func (e *evaluation) fail(format string, args ...any) {
	where, what := e.tree.ErrorContext(e.node)
	e.must(fmt.Errorf("template: %s: executing %q at <%s>: "+format, append([]any{where, e.tree.Name, what}, args...)...))
}

func (e *evaluation) must(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// flow says how a node ended.
type flow int

const (
	onward flow = iota
	stopped
	continued
)

func (e *evaluation) walk(dot any, node parse.Node) flow {
	e.node = node
	e.must(e.work.add(1))
	switch n := node.(type) {
	case *parse.ActionNode:
		if value := e.pipeline(dot, n.Pipe); len(n.Pipe.Decl) == 0 {
			e.must(e.print(value, saysItself(n.Pipe)))
		}
	case *parse.BreakNode:
		return stopped
	case *parse.ContinueNode:
		return continued
	case *parse.IfNode:
		return e.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return e.branch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		return e.loop(dot, n)
	case *parse.ListNode:
		for _, one := range n.Nodes {
			if ended := e.walk(dot, one); ended != onward {
				return ended
			}
		}
	case *parse.TemplateNode:
		e.nest(dot, n)
	case *parse.TextNode:
		_, err := e.Write(n.Text)
		e.must(err)
	}
	return onward
}

// nest executes another template, which has no variables of this one.
func (e *evaluation) nest(dot any, n *parse.TemplateNode) {
	if e.trees[n.Name] == nil {
		e.fail("template %q not defined", n.Name)
	}
	if e.nested++; e.nested > maxNested {
		e.must(errNested)
	}
	value := e.pipeline(dot, n.Pipe)
	nested := evaluation{rendering: e.rendering, trees: e.trees, tree: e.trees[n.Name], vars: []variable{{"$", value}}}
	nested.walk(value, nested.tree.Root)
}

// forget removes the variables after the first n.
func (e *evaluation) forget(n int) { e.vars = e.vars[:n] }

// branch executes an if, or a with, which sets the dot.
func (e *evaluation) branch(dot any, n *parse.BranchNode, with bool) flow {
	defer e.forget(len(e.vars))
	value := e.pipeline(dot, n.Pipe)
	switch {
	case truth(value) && with:
		return e.walk(value, n.List)
	case truth(value):
		return e.walk(dot, n.List)
	case n.ElseList != nil:
		return e.walk(dot, n.ElseList)
	}
	return onward
}

// sortedKey is how much the order of a key in a range counts: it is made before the first round.
const sortedKey = 4

func (e *evaluation) loop(dot any, n *parse.RangeNode) flow {
	defer e.forget(len(e.vars))
	value := e.pipeline(dot, n.Pipe)
	outer, empty := len(e.vars), true
	round := func(index, element any) (again bool) {
		empty = false
		e.declare(n.Pipe, index, element)
		ended := e.walk(element, n.List)
		e.forget(outer)
		return ended != stopped
	}
	switch v := widened(value).(type) {
	case nil:
	case int64:
		if len(n.Pipe.Decl) > 1 {
			e.fail("can't use %v to iterate over more than one variable", v)
		}
		for i := int64(0); i < v && round(nil, i); i++ {
		}
	case []any:
		for i := 0; i < len(v) && round(i, v[i]); i++ {
		}
	default:
		object, ok := objectOf(v)
		if !ok {
			e.fail("range can't iterate over %v", v)
		}
		e.must(e.work.add(sortedKey * len(object)))
		for _, key := range slices.Sorted(maps.Keys(object)) {
			if !round(key, object[key]) {
				break
			}
		}
	}
	if empty && n.ElseList != nil && e.walk(dot, n.ElseList) == continued {
		return continued // in text/template, too, a break here ends only this loop
	}
	return onward
}

// declare sets the variables of a loop for a round. One alone is the element.
func (e *evaluation) declare(pipe *parse.PipeNode, index, element any) {
	values := []any{index, element}[2-len(pipe.Decl):]
	for i, value := range values {
		if pipe.IsAssign {
			e.variable(pipe.Decl[i]).value = value
		} else {
			e.vars[len(e.vars)-len(values)+i].value = value
		}
	}
}

// variable returns the last one of a name. The parser has checked that there is one.
func (e *evaluation) variable(n *parse.VariableNode) *variable {
	i := len(e.vars) - 1
	for e.vars[i].name != n.Ident[0] {
		i--
	}
	return &e.vars[i]
}

// pipeline evaluates commands, each with the value of the one before, and sets the variables.
func (e *evaluation) pipeline(dot any, pipe *parse.PipeNode) any {
	if pipe == nil {
		return nil
	}
	e.must(e.work.add(1))
	var last []any
	for _, command := range pipe.Cmds {
		last = []any{e.word(dot, command.Args[0], command, command.Args[1:], last)}
	}
	for _, n := range pipe.Decl {
		if pipe.IsAssign {
			e.variable(n).value = last[0]
		} else {
			e.vars = append(e.vars, variable{n.Ident[0], last[0]})
		}
	}
	return last[0]
}

// word returns the value of the first word of a command, or of an argument. args follow it, and then the
// last value of the pipeline, if there is one.
func (e *evaluation) word(dot any, word, command parse.Node, args []parse.Node, last []any) any {
	given := len(args)+len(last) > 0
	e.node = word
	e.must(e.work.add(1))
	switch n := word.(type) {
	case *parse.FieldNode:
		return e.fields(dot, n.Ident, given)
	case *parse.ChainNode:
		return e.fields(e.word(dot, n.Node, n.Node, nil, nil), n.Field, given)
	case *parse.IdentifierNode:
		return e.call(dot, n.Ident, command, args, last)
	case *parse.VariableNode:
		if !given || len(n.Ident) > 1 {
			return e.fields(e.variable(n).value, n.Ident[1:], given)
		}
	}
	if given {
		e.fail("can't give argument to non-function %s", word)
	}
	switch n := word.(type) {
	case *parse.PipeNode:
		return e.pipeline(dot, n)
	case *parse.DotNode:
		return dot
	case *parse.BoolNode:
		return n.True
	case *parse.StringNode:
		return n.Text
	case *parse.NumberNode:
		return e.number(n)
	}
	if word == command {
		return nil // as an argument
	}
	e.fail("nil is not a command")
	return nil
}

// number returns the value of a number as Go has it without a type.
func (e *evaluation) number(n *parse.NumberNode) any {
	hex := strings.HasPrefix(strings.ToLower(n.Text), "0x") && !strings.ContainsAny(n.Text, "pP")
	switch {
	case n.IsComplex:
		return n.Complex128
	case n.IsFloat && !hex && n.Text[0] != '\'' && strings.ContainsAny(n.Text, ".eEpP"):
		return n.Float64
	case !n.IsInt || int64(int(n.Int64)) != n.Int64:
		e.fail("%s overflows int", n.Text)
	}
	return int(n.Int64)
}

// fields returns a member of a member of an object, and so on. given says that it has arguments.
func (e *evaluation) fields(value any, names []string, given bool) any {
	e.must(e.work.add(len(names)))
	for i, name := range names {
		object, ok := objectOf(value)
		switch {
		case value == nil:
			return nil
		case !ok:
			e.fail("can't evaluate field %s in type %T", name, value)
		case given && i == len(names)-1:
			e.fail("%s is not a method but has arguments", name)
		}
		value = object[name]
	}
	return value
}

// call calls a function with args, and then last.
func (e *evaluation) call(dot any, name string, command parse.Node, args []parse.Node, last []any) any {
	f, given := functions[name], len(args)+len(last)
	switch {
	case f.more && given < f.least:
		e.fail("wrong number of args for %s: want at least %d got %d", name, f.least, len(args))
	case !f.more && given != f.least:
		e.fail("wrong number of args for %s: want %d got %d", name, f.least, given)
	}
	values := make([]any, 0, given)
	for _, arg := range args {
		value := e.word(dot, arg, arg, nil, nil)
		if f.do == nil && truth(value) == (name == "or") {
			return value
		}
		values = append(values, value)
	}
	values = append(values, last...)
	if f.do == nil { // and, or
		return values[given-1]
	}
	value, err := f.do(e.rendering, values)
	if err != nil {
		e.node = command
		e.fail("error calling %s: %w", name, err)
	}
	return value
}
