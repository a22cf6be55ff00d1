package wasmfuel_test

import (
	"math/rand/v2"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// What follows makes programs from any bytes, and executes and counts them as the rule
// says, one instruction after the other, to see whether what is paid in advance, and for
// whole segments, comes to the same.

// node is a statement or an expression.
type node struct {
	kind   kind
	n      uint32  // a local, a constant, a function, or an operator
	labels []int   // of branches
	kids   []*node // operands
	body   []*node
	other  []*node // the second half of an if
	two    bool    // there is one
}

type kind int

const (
	constant kind = iota
	get
	operation
	set
	nothing
	blockOf
	loopOf
	ifOf
	branch
	branchIf
	branchTable
	leave
	callOf
	fill
	trap
	choose // an if with a value
	drops
	kinds
)

const locals = 4

// source makes decisions of bytes.
type source struct {
	data []byte
	size int // of the program so far
}

func (s *source) next(below int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % below
}

func (s *source) expression(depth int) *node {
	s.size++
	switch k := s.next(4); {
	case k >= 2 && depth > 0:
		return &node{kind: operation, n: uint32(s.next(4)), kids: []*node{s.expression(depth - 1), s.expression(depth - 1)}}
	case k == 1:
		return &node{kind: get, n: uint32(s.next(locals))}
	}
	return &node{kind: constant, n: uint32(s.next(256)) - 64}
}

// list makes statements in so many blocks, of the function f, which may call those behind it.
func (s *source) list(blocks, f int) []*node {
	var list []*node
	for n := s.next(6); n > 0 && s.size < 300; n-- {
		s.size++
		statement := &node{kind: set + kind(s.next(int(kinds-set)))}
		list = append(list, statement)
		statement.n = uint32(s.next(locals))
		label := func() { statement.labels = append(statement.labels, s.next(blocks+1)) }
		switch statement.kind {
		case set, fill, branchIf, branchTable, leave, drops:
			statement.kids = []*node{s.expression(2)}
		case choose:
			statement.kids = []*node{s.expression(1), s.expression(1), s.expression(1)}
		case callOf:
			if f == 2 {
				statement.kind = nothing
				break
			}
			statement.kids = []*node{s.expression(1)}
		case ifOf:
			statement.kids = []*node{s.expression(1)}
			if statement.two = s.next(2) == 1; statement.two && blocks < 8 {
				statement.other = s.list(blocks+1, f)
			}
		default: // no operands
		}
		switch statement.kind {
		case branch, branchIf:
			label()
		case branchTable:
			for range 1 + s.next(4) {
				label()
			}
		case blockOf, loopOf, ifOf:
			if blocks < 8 {
				statement.body = s.list(blocks+1, f)
			}
		default: // no labels, and nothing in it
		}
	}
	return list
}

var operators = [4]op{i32Add, i32Sub, i32Xor, i32LtS}

func codeOf(list []*node, f int) string {
	s := ""
	for _, n := range list {
		s += n.code(f)
	}
	return s
}

// code assembles a node of the function f.
func (n *node) code(f int) string {
	kids := codeOf(n.kids, f)
	switch n.kind {
	case constant:
		return code(i32Const, int(int32(n.n)))
	case get:
		return code(localGet, int(n.n))
	case operation:
		return kids + code(operators[n.n])
	case set:
		return kids + code(localSet, int(n.n))
	case nothing:
		return code(nop)
	case blockOf:
		return code(block, empty) + codeOf(n.body, f) + code(end)
	case loopOf:
		return code(loop, empty) + codeOf(n.body, f) + code(end)
	case ifOf:
		s := kids + code(if_, empty) + codeOf(n.body, f)
		if n.two {
			s += code(else_) + codeOf(n.other, f)
		}
		return s + code(end)
	case branch:
		return codeOfBranch(br, n)
	case branchIf:
		return kids + codeOfBranch(brIf, n)
	case branchTable:
		s := kids + code(brTable, len(n.labels)-1)
		for _, l := range n.labels {
			s += code(l)
		}
		return s
	case leave:
		return kids + code(return_)
	case callOf:
		return kids + code(call, f+1, localSet, int(n.n))
	case fill:
		return code(i32Const, 0, i32Const, 1) + kids + code(i32Const, 1023, op(0x71), misc, memoryFill, 0)
	case trap:
		return code(unreachable)
	case choose:
		return codeOf(n.kids[:1], f) + code(if_, i32) + codeOf(n.kids[1:2], f) + code(else_) + codeOf(n.kids[2:], f) + code(end, localSet, int(n.n))
	case drops:
		return kids + code(drop)
	default:
		panic("unknown node")
	}
}

// codeOfBranch assembles a branch. One to the function itself, which takes a value, becomes
// one to a block around the body, see programOf.
func codeOfBranch(op op, n *node) string { return code(op, n.labels[0]) }

// programOf makes three functions of statements. All that leave their outermost block
// return the local 0.
func programOf(data []byte) (program, [3][]*node) {
	s := &source{data: data}
	p := main("")
	var bodies [3][]*node
	p.funcs = nil
	for f := range bodies {
		bodies[f] = s.list(0, f)
		p.funcs = append(p.funcs, function{locals: locals - 1, code: code(block, empty) + codeOf(bodies[f], f) + code(end, localGet, 0)})
	}
	return p, bodies
}

// interpreter executes what programOf made.
type interpreter struct {
	bodies [3][]*node
	locals [locals]uint32
	f      int
	steps  int64
	most   int64
	result uint32
}

// How a statement ends: by going on, or else by going to the label of that number.
const (
	goesOn   = -1
	returns  = 1000
	trapped  = 1001
	tooLong  = 1002
	stopping = trapped // and above: the whole run is over
)

func (i *interpreter) call(f int, arg uint32) (uint32, int) {
	saved := *i
	i.locals, i.f = [locals]uint32{arg}, f
	how := i.list(i.bodies[f])
	value := i.result
	if how < returns { // it came to the end, or left the outermost block
		how = goesOn
		i.steps++
		value = i.locals[0]
	}
	if how == returns {
		how = goesOn
	}
	i.locals, i.f = saved.locals, saved.f
	return value, how
}

func (i *interpreter) list(list []*node) int {
	for _, n := range list {
		if how := i.statement(n); how != goesOn {
			return how
		}
		if i.steps > i.most {
			return tooLong
		}
	}
	return goesOn
}

func (i *interpreter) value(n *node) uint32 {
	i.steps++
	switch n.kind {
	case constant:
		return n.n
	case get:
		return i.locals[n.n]
	default:
		a, b := i.value(n.kids[0]), i.value(n.kids[1])
		switch n.n {
		case 0:
			return a + b
		case 1:
			return a - b
		case 2:
			return a ^ b
		}
		if int32(a) < int32(b) {
			return 1
		}
		return 0
	}
}

// inner executes the body of a block.
func (i *interpreter) inner(list []*node) int {
	how := i.list(list)
	if how > 0 && how < returns {
		return how - 1
	}
	if how == 0 {
		return goesOn
	}
	return how
}

func (i *interpreter) statement(n *node) int {
	switch n.kind {
	case set:
		v := i.value(n.kids[0])
		i.steps++
		i.locals[n.n] = v
	case nothing:
	case drops:
		i.value(n.kids[0])
		i.steps++
	case blockOf:
		return i.inner(n.body)
	case loopOf:
		for {
			how := i.list(n.body)
			if how == 0 && i.steps <= i.most {
				continue
			}
			if how == 0 {
				return tooLong
			}
			if how > 0 && how < returns {
				return how - 1
			}
			return how
		}
	case ifOf:
		v := i.value(n.kids[0])
		i.steps++
		if v != 0 {
			return i.inner(n.body)
		}
		return i.inner(n.other)
	case branch:
		i.steps++
		return n.labels[0]
	case branchIf:
		v := i.value(n.kids[0])
		i.steps++
		if v != 0 {
			return n.labels[0]
		}
	case branchTable:
		v := int64(i.value(n.kids[0]))
		i.steps++
		return n.labels[min(v, int64(len(n.labels)-1))]
	case leave:
		i.result = i.value(n.kids[0])
		i.steps++
		return returns
	case callOf:
		v := i.value(n.kids[0])
		i.steps++
		v, how := i.call(i.f+1, v)
		if how != goesOn {
			return how
		}
		i.steps++
		i.locals[n.n] = v
	case fill:
		i.steps += 2
		v := i.value(n.kids[0])
		i.steps += 3 + int64(v&1023)/64
	case trap:
		i.steps++
		return trapped
	case choose:
		v := i.value(n.kids[0])
		i.steps++
		if v != 0 {
			v = i.value(n.kids[1])
		} else {
			v = i.value(n.kids[2])
		}
		i.steps++
		i.locals[n.n] = v
	default:
		panic("no statement")
	}
	return goesOn
}

// agree runs the program that is made of data.
func agree(t *testing.T, data []byte) {
	t.Helper()
	p, bodies := programOf(data)
	i := &interpreter{bodies: bodies, most: 100_000}
	want, how := i.call(0, 7)
	m := newMachine(t)
	opts := wasmfuel.Options{Slice: 50}
	got := m.run(t, p.bytes(), opts, i.most, 7)
	switch how {
	case tooLong:
		if !got.exhausted {
			t.Errorf("endless: got %+v", got)
		}
	case trapped:
		if got.err == nil || got.exhausted || got.steps < i.steps || got.steps > i.steps+1000 {
			t.Errorf("a trap after %d steps: got %+v", i.steps, got)
		}
	default:
		if got.err != nil || got.exhausted || got.steps != i.steps || uint32(got.value[0]) != want {
			t.Fatalf("want %d after %d steps, got %+v", want, i.steps, got)
		}
		if got := m.run(t, p.bytes(), opts, i.steps, 7); got.err != nil || got.exhausted {
			t.Errorf("%d steps are not enough: %+v", i.steps, got)
		}
		if got := m.run(t, p.bytes(), opts, i.steps-1, 7); !got.exhausted {
			t.Errorf("%d steps are enough, and it takes one more", i.steps-1)
		}
	}
}

func TestT37FuelIsWhatAnInterpreterCounts(t *testing.T) {
	ended, programs := 0, needs.Rounds(30, 100)
	for seed := range uint64(programs) {
		r := rand.New(rand.NewPCG(seed, 37))
		data := make([]byte, 20+r.IntN(600))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		agree(t, data)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		_, bodies := programOf(data)
		if _, how := (&interpreter{bodies: bodies, most: 100_000}).call(0, 7); how == goesOn {
			ended++
		}
	}
	if ended < programs/3 {
		t.Errorf("only %d programs came to their end", ended)
	}
}

func FuzzCount(f *testing.F) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			t.Skip("long enough")
		}
		agree(t, data)
	})
}
