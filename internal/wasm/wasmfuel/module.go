package wasmfuel

import (
	"bytes"
	"math"
	"strings"
)

const maxInt32 = math.MaxInt32

// Limits of a module. Some are those of browsers. All are there because a few bytes of each cost the
// runtime much more.
const (
	maxModule       = 1 << 30
	maxTypes        = 100_000
	maxValues       = 1_000 // parameters, or results, of a type
	maxTypeValues   = 1_000_000
	maxImports      = 1_000
	maxFunctions    = 200_000
	maxTables       = 100
	maxTableEntries = 1 << 20 // of all tables together, and of all element segments
	maxGlobals      = 10_000
	maxExports      = 100_000
	maxSegments     = 100_000
	maxLocals       = 50_000 // of a function
	maxBody         = 4 << 20
	maxDepth        = 5_000
	maxTargets      = 65_520 // of a br_table
	maxBranches     = 25_000 // of a function: the compiler's work grows with their square
	maxPages        = 1 << 16
)

const pageSize = 1 << 16 // of a memory, in bytes

// Section ids.
const (
	customSection = iota
	typeSection
	importSection
	functionSection
	tableSection
	memorySection
	globalSection
	exportSection
	startSection
	elementSection
	codeSection
	dataSection
	dataCountSection
	sections
)

// order is the position of each section: dataCountSection was added to the format later.
var order = [sections]int{
	typeSection: 1, importSection: 2, functionSection: 3, tableSection: 4, memorySection: 5, globalSection: 6,
	exportSection: 7, startSection: 8, elementSection: 9, dataCountSection: 10, codeSection: 11, dataSection: 12,
}

// span is a part of the module.
type span struct{ start, end int }

// signature is a function type. Both fields are parts of the module, with one byte per type.
type signature struct{ params, results []byte }

func (s signature) empty() bool { return len(s.params)+len(s.results) == 0 }

// module has what is needed of a module to rewrite it.
type module struct {
	buf     []byte
	vectors bool           // some type is v128
	frame   int64          // largest stack frame of a function
	section [sections]span // contents without their counts; empty if missing
	counts  [sections]int  // number of entries of each section that is a list
	types   []signature
	imports []uint32 // types of the imported functions; nothing else can be imported
	bounds  []bound  // limits for their parameters
	repeats []repeat // which of their parameters costs
	defined []uint32 // types of the defined functions
	globals int
	mutable int  // number of mutable globals
	entries int  // of all element segments
	grows   bool // some function grows a table
	start   int  // the start function, or -1
	tables  []table
	memory  *limits // nil if there is none
	large   []large // passive data segments larger than a piece
}

// large is a data segment larger than a piece.
type large struct {
	index  uint32
	length int64
}

type table struct {
	element byte
	limits  limits
}

// limits are those of a table or a memory. max is the largest allowed value if the module has none.
type limits struct{ min, max int64 }

// functions is the number of functions, imported and defined.
func (m *module) functions() int { return len(m.imports) + len(m.defined) }

// Memory of an instance in the runtime, in bytes: measured, including the unused capacity of slices.
const (
	reference  = Reference
	tableEntry = 8
	global     = 64
	segment    = 24
	typeNumber = 4
)

// instance returns roughly how many bytes an instance takes in addition to its memory. Tables that a
// function grows count with twice their largest size. The call stack grows to twice what is needed;
// its first size, before [Depth] counts, has room for any function.
func (m *module) instance() int64 {
	n := 2*int(m.frame) + reference*m.entries + (reference+global)*m.globals + typeNumber*len(m.types) +
		segment*(m.counts[elementSection]+m.counts[dataSection])
	for _, t := range m.tables {
		entries := t.limits.min
		if m.grows {
			entries = 2 * m.mostEntries(t)
		}
		n += tableEntry * int(entries)
	}
	return int64(n)
}

// mostEntries is the largest size of a table: all tables together have at most twice
// maxTableEntries.
func (m *module) mostEntries(t table) int64 {
	return min(t.limits.max, max(t.limits.min, int64(maxTableEntries/len(m.tables))))
}

// typeOf returns the type of a function.
func (m *module) typeOf(function uint32) signature {
	if int(function) < len(m.imports) {
		return m.types[m.imports[function]]
	}
	return m.types[m.defined[int(function)-len(m.imports)]]
}

// parse reads a module, except the bodies of its functions.
func parse(buf []byte, maxMemory int64) (*module, *Error) {
	m := &module{buf: buf, start: -1}
	r := &reader{buf: buf, end: len(buf)}
	if !bytes.HasPrefix(buf, []byte("\x00asm\x01\x00\x00\x00")) {
		r.fail(0, "this is not a WebAssembly module of version 1")
	}
	if len(buf) > maxModule {
		r.fail(maxModule, "a module of more than %d bytes", maxModule)
	}
	r.skip(8)
	last := 0
	for r.err == nil && r.more() {
		id := int(r.byte())
		size := r.count("bytes of a section", 1, maxInt32)
		at := r.pos
		switch {
		case r.err != nil:
		case id >= sections:
			r.fail(at, "unknown section %d", id)
		case id == customSection: // names and debug information, which rewriting would make wrong: dropped
			r.end = at + size
			if r.bytes("a name"); r.err == nil {
				r.pos = r.end
			}
			r.end = len(buf)
		case order[id] <= last:
			r.fail(at, "section %d is out of order", id)
		default:
			last = order[id]
			m.parseSection(r, id, size, maxMemory)
		}
	}
	if r.err == nil && len(m.defined) != m.counts[codeSection] {
		r.fail(len(buf), "%d functions have %d bodies", len(m.defined), m.counts[codeSection])
	}
	if m.memory == nil || m.section[dataCountSection].start == 0 {
		m.large = nil // no memory.init is valid then
	}
	return m, r.err
}

// parseSection reads one section, which must end where it says.
func (m *module) parseSection(r *reader, id, size int, maxMemory int64) {
	s := &reader{buf: r.buf, pos: r.pos, end: r.pos + size}
	m.section[id] = span{s.pos, s.end}
	switch id {
	case startSection:
		at := s.pos
		m.start = int(s.index("function", m.functions()))
		if s.err == nil && !m.typeOf(uint32(m.start)).empty() {
			s.fail(at, "the start function has parameters or results")
		}
	case dataCountSection:
		s.u32() // the runtime checks it
	default:
		most := [sections]int{
			typeSection: maxTypes, importSection: maxImports, functionSection: maxFunctions, tableSection: maxTables, memorySection: 1,
			globalSection: maxGlobals, exportSection: maxExports, elementSection: maxSegments, codeSection: maxFunctions, dataSection: maxSegments,
		}
		n := s.count("entries of a section", 1, most[id])
		m.counts[id], m.section[id] = n, span{s.pos, s.end}
		m.parseEntries(s, id, n, maxMemory)
	}
	m.vectors = m.vectors || s.vectors
	if s.err == nil && s.more() {
		s.fail(s.pos, "section %d has %d bytes too many", id, s.end-s.pos)
	}
	if s.err != nil {
		r.fail(s.err.Offset, "%s", s.err.Reason)
		return
	}
	r.pos = s.end
}

// parseEntries reads the entries of a section that is a list.
func (m *module) parseEntries(s *reader, id, n int, maxMemory int64) {
	values := 0 // of all types
	for i := range n {
		if s.err != nil {
			return
		}
		switch id {
		case typeSection:
			values += m.parseType(s, maxTypeValues-values)
		case importSection:
			m.parseImport(s)
		case functionSection:
			m.defined = append(m.defined, s.index("type", len(m.types)))
		case tableSection:
			m.parseTable(s)
		case memorySection:
			m.parseMemory(s, maxMemory)
		case globalSection:
			s.valueType()
			m.mutable += int(s.choice("mutability", 2))
			s.expression(m, m.globals, nil)
			m.globals++
		case exportSection:
			m.parseExport(s)
		case elementSection:
			m.entries += s.element(m, maxTableEntries-m.entries, nil)
		case codeSection:
			s.skip(s.count("bytes of a function", 1, maxBody))
		case dataSection:
			kind := s.index("kind of a data segment", 3)
			if kind != passive {
				if kind == 2 {
					s.constant("memory", 0)
				}
				s.expression(m, m.globals, nil)
			}
			if length := int64(len(s.bytes("a data segment"))); kind == passive && length > piece {
				m.large = append(m.large, large{uint32(i), length})
			}
		}
	}
}

// parseType reads a function type with at most most values, and returns how many it has.
func (m *module) parseType(s *reader, most int) int {
	at := s.pos
	s.constant("form of a type", typeFunction)
	list := func(what string) []byte {
		n := s.count(what, 1, maxValues)
		start := s.pos
		for range n {
			s.valueType()
		}
		return s.buf[start:min(s.pos, start+n)]
	}
	t := signature{list("parameters"), list("results")}
	m.types = append(m.types, t)
	n := len(t.params) + len(t.results)
	if n > most {
		s.fail(at, "the types have more than %d parameters and results", maxTypeValues)
	}
	return n
}

// parseImport reads an import, which must be a function: the host has nothing else.
func (m *module) parseImport(s *reader) {
	at := s.pos
	from, name := s.bytes("a name"), s.bytes("a name")
	if strings.HasPrefix(string(from), reserved) {
		s.fail(at, "imports %q from %q, which is reserved", name, from)
	}
	if kind := s.byte(); kind != 0 && s.err == nil {
		s.fail(at, "imports %q from %q, which is not a function", name, from)
	}
	m.imports = append(m.imports, s.index("type", len(m.types)))
	full := string(from) + "." + string(name)
	m.repeats, m.bounds = append(m.repeats, repeats[full]), append(m.bounds, bounds[full])
}

// parseLimits reads limits. The minimum must be at most most. The maximum may be larger; without
// one, it is the largest number of the format.
func (s *reader) parseLimits(what string, most int64) limits {
	at := s.pos
	flag := s.choice("kind of limits", 2)
	l := limits{min: int64(s.u32()), max: math.MaxUint32}
	if flag == 1 {
		l.max = int64(s.u32())
	}
	switch {
	case l.min > l.max:
		s.fail(at, "a %s has a minimum of %d above its maximum of %d", what, l.min, l.max)
	case l.min > most:
		s.fail(at, "a %s has a minimum of %d: at most %d are allowed", what, l.min, most)
	}
	return l
}

func (m *module) parseTable(s *reader) {
	at := s.pos
	element := s.byte()
	if !isReference(element) {
		s.fail(at, "unknown type of a table %#x", element)
	}
	left := int64(maxTableEntries)
	for _, t := range m.tables {
		left -= t.limits.min
	}
	m.tables = append(m.tables, table{element, s.parseLimits("table", left)})
}

func (m *module) parseMemory(s *reader, maxMemory int64) {
	at := s.pos
	most := min(maxMemory/pageSize, maxPages)
	l := s.parseLimits("memory", most)
	if l.max != math.MaxUint32 && l.max > maxPages {
		s.fail(at, "a memory has a maximum of %d pages", l.max)
	}
	l.max = min(l.max, most)
	m.memory = &l
}

func (m *module) parseExport(s *reader) {
	at := s.pos
	if name := s.bytes("a name"); strings.HasPrefix(string(name), reserved) {
		s.fail(at, "exports %q, which is reserved", name)
	}
	switch kind := s.choice("kind of an export", 4); kind {
	case exportFunction:
		s.index("function", m.functions())
	case exportTable:
		s.index("table", len(m.tables))
	case exportMemory:
		s.index("memory", m.counts[memorySection])
	case exportGlobal:
		s.index("global", m.globals)
	}
}

const (
	exportFunction = iota
	exportTable
	exportMemory
	exportGlobal
)

// passive is the kind of data segments that only memory.init reads.
const passive = 1

// renumber is called for each reference to a function, with its position and the length of its
// encoding, so that the writer can replace it. It may be nil.
type renumber func(at, length int, function uint32)

func (s *reader) function(m *module, f renumber) {
	at := s.pos
	i := s.index("function", m.functions())
	if s.err == nil && f != nil {
		f(at, s.pos-at, i)
	}
}

// expression reads a constant expression of one instruction. It may use the globals before it.
func (s *reader) expression(m *module, globals int, f renumber) {
	at := s.pos
	switch op := s.byte(); op {
	case opI32Const, opI64Const, opF32Const, opF64Const, opRefNull:
		s.pass(op, immediateOf(op), m)
	case opGlobalGet:
		s.index("global", globals)
	case opRefFunc:
		s.function(m, f)
	case opVector:
		s.constant("vector instruction of a constant expression", vectorConst)
		s.skip(16)
	default:
		s.fail(at, "instruction %#x in a constant expression", op)
	}
	s.constant("end of a constant expression", opEnd)
}

// element reads an element segment of at most most entries, and returns how many it has.
func (s *reader) element(m *module, most int, f renumber) int {
	kind := s.index("kind of an element segment", 8)
	active, typed, expressions := kind&1 == 0, kind&3 != 0, kind&4 != 0
	if active {
		if kind&2 != 0 {
			s.index("table", len(m.tables))
		}
		s.expression(m, m.globals, f)
	}
	switch {
	case typed && expressions:
		if at := s.pos; !isReference(s.byte()) {
			s.fail(at, "unknown type of an element segment")
		}
	case typed:
		s.constant("kind of an element", 0)
	}
	n := s.count("elements", 1, most)
	for range n {
		if s.err != nil {
			break
		}
		if expressions {
			s.expression(m, m.globals, f)
		} else {
			s.function(m, f)
		}
	}
	return n
}
