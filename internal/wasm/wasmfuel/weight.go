package wasmfuel

// Additional weights of instructions that the compiler expands to many others; each instruction has
// a weight of one anyway. They were measured, as the memory for a hundred thousand instructions.
const (
	perVector = 33
	perTarget = 25 // of a br_table
	// perExit is that of each access to memory: it is compared with the end of memory, and has an exit of its own. It counts for
	// the function alone, and not in maxTotal, since it is not much native code, and the compiler leaves it out where it has
	// just compared the same address.
	perExit = 54
)

// weights are those of the opcodes of one byte.
var weights = func() (w [256]int) {
	set := func(from, to, weight int) {
		for op := from; op <= to; op++ {
			w[op] = weight
		}
	}
	set(opCallIndirect, opCallIndirect, 130)
	set(opSelect, 0x1c, 12)
	set(opGlobalSet, opGlobalSet, 6)
	set(0x25, 0x26, 40) // table.get, table.set
	set(0x3f, 0x3f, 16) // memory.size
	set(opMemoryGrow, opMemoryGrow, 40)
	set(0x6d, 0x70, 50) // division of i32
	set(0x7f, 0x82, 50) // of i64
	set(0x96, 0x97, 33) // min and max of f32
	set(0xa4, 0xa5, 33) // of f64
	set(0xa8, 0xab, 70) // conversions of floats to i32 that may trap
	set(0xae, 0xb1, 70) // the same to i64
	return w
}()

// miscWeights are those of the opcodes after opMisc.
var miscWeights = [len(miscImmediates)]int{
	40, 40, 40, 40, 40, 40, 40, 40, // conversions that saturate
	miscMemoryInit: 180, miscMemoryCopy: 150, miscMemoryFill: 350,
	miscTableInit: 200, miscTableCopy: 230, miscTableGrow: 50, miscTableFill: 350,
}

// miscBranches are the branches that instructions after opMisc count as.
var miscBranches = [len(miscImmediates)]int{miscMemoryFill: 8, miscTableFill: 8}
