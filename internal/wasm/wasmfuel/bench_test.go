package wasmfuel_test

import (
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// goModule compiles the Go program of testdata.
func goModule(t testing.TB) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "work.wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", out, "./testdata/work")
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	module, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// numeric are programs that do nothing but count, which is where meters cost most.
var numeric = map[string]struct {
	program program
	arg     uint64
}{
	// x = x*1664525 + 1013904223; h ^= x>>16: 17 instructions each time.
	"hash": {main(code(i32Const, 1, localSet, 1, loop, empty,
		localGet, 1, i32Const, 1664525, i32Mul, i32Const, 1013904223, i32Add, localTee, 1,
		i32Const, 16, i32ShrU, localGet, 2, i32Xor, localSet, 2,
		localGet, 0, i32Const, 1, i32Sub, localTee, 0, brIf, 0, end, localGet, 2)), 2_000_000},
	// For each i below n, for each j below 300: s += i*j.
	"nested": {main(code(loop, empty, i32Const, 300, localSet, 1,
		loop, empty, localGet, 2, localGet, 0, localGet, 1, i32Mul, i32Add, localSet, 2,
		localGet, 1, i32Const, 1, i32Sub, localTee, 1, brIf, 0, end,
		localGet, 0, i32Const, 1, i32Sub, localTee, 0, brIf, 0, end, localGet, 2)), 10_000},
	// Crosses out the multiples of each number in 64 KiB: a store and six more each time.
	"sieve": {main(code(i32Const, 2, localSet, 1, loop, empty,
		localGet, 1, i32Const, 2, i32Mul, localSet, 2,
		block, empty, loop, empty,
		localGet, 2, i32Const, 65536, i32LtU, i32Eqz, brIf, 1,
		localGet, 2, i32Const, 1, i32Store8, 0, 0,
		localGet, 2, localGet, 1, i32Add, localSet, 2, br, 0, end, end,
		localGet, 1, i32Const, 1, i32Add, localTee, 1, localGet, 0, i32LtU, brIf, 0, end, localGet, 2)), 5_000},
	// Fills 64 bytes n times: an instruction that moves memory is a call.
	"fills": {main(code(loop, empty, i32Const, 0, i32Const, 1, i32Const, 64, misc, memoryFill, 0,
		localGet, 0, i32Const, 1, i32Sub, localTee, 0, brIf, 0, end, localGet, 0)), 200_000},
	// fib(n) by recursion: nothing but calls.
	"calls": {main(code(localGet, 0, i32Const, 2, i32LtS, if_, i32, localGet, 0, else_,
		localGet, 0, i32Const, 1, i32Sub, call, 0, localGet, 0, i32Const, 2, i32Sub, call, 0, i32Add, end)), 27},
}

// BenchmarkOverhead reports what meters cost: each module runs with and without in turn.
// How fast a loop of a few instructions is depends on where the compiler happens to put it,
// by half and more: what is reported is of many such places.
func BenchmarkOverhead(b *testing.B) {
	const places = 8
	for _, name := range slices.Sorted(maps.Keys(numeric)) {
		n := numeric[name]
		b.Run(name, func(b *testing.B) {
			var pairs []*pair
			for place := range places {
				p := n.program
				p.funcs = slices.Clone(p.funcs)
				p.funcs[0].code = strings.Repeat(code(i32Const, 0, i32Const, 1, i32Store8, 0, 0), place) + p.funcs[0].code
				pairs = append(pairs, newPair(b, newMachine(b), p.bytes(), "", "f", n.arg))
			}
			compare(b, pairs)
		})
	}
	b.Run("go", func(b *testing.B) {
		m := &machine{Runtime: wazero.NewRuntime(b.Context())}
		defer m.Close(b.Context()) //nolint:errcheck // it is in memory
		wasi_snapshot_preview1.MustInstantiate(b.Context(), m)
		if _, err := m.NewHostModuleBuilder(wasmfuel.Host).NewFunctionBuilder().WithFunc(func() {}).Export(wasmfuel.Yield).Instantiate(b.Context()); err != nil {
			b.Fatal(err)
		}
		input := `{"input":"` + strings.Repeat("the quick brown fox jumps over the lazy dog ", 500) + `"}`
		compare(b, []*pair{newPair(b, m, goModule(b), input, "_start")})
	})
}

// pair is a module without meters and with them, and the shortest run of each.
type pair struct {
	machine *machine
	modules [2]wazero.CompiledModule
	input   string
	call    string
	args    []uint64

	best  [2]time.Duration
	steps int64
}

func newPair(b *testing.B, m *machine, module []byte, input, call string, args ...uint64) *pair {
	b.Helper()
	p := &pair{machine: m, input: input, call: call, args: args}
	metered, _, err := wasmfuel.Instrument(module, wasmfuel.Options{})
	if err != nil {
		b.Fatal(err)
	}
	for i, module := range [][]byte{module, metered} {
		if p.modules[i], err = m.CompileModule(b.Context(), module); err != nil {
			b.Fatal(err)
		}
	}
	return p
}

// compare runs each half of each pair in turn, and reports the ratio of their shortest runs:
// what interferes only makes a run longer.
func compare(b *testing.B, pairs []*pair) {
	b.Helper()
	for b.Loop() {
		for _, p := range pairs {
			for i := range p.modules {
				p.run(b, i)
			}
		}
	}
	var plain, metered time.Duration
	var steps int64
	for _, p := range pairs {
		plain, metered, steps = plain+p.best[0], metered+p.best[1], steps+p.steps
	}
	b.ReportMetric(float64(metered)/float64(plain), "x")
	b.ReportMetric(float64(plain.Nanoseconds())/float64(steps), "ns/step")
	b.ReportMetric(float64(steps)/float64(len(pairs)), "steps")
}

// run runs one half in a fresh instance.
func (p *pair) run(b *testing.B, half int) {
	b.Helper()
	instance, err := p.machine.InstantiateModule(b.Context(), p.modules[half], wazero.NewModuleConfig().WithName("").WithStartFunctions().
		WithStdin(strings.NewReader(p.input)).WithStdout(io.Discard).WithStderr(os.Stderr))
	if err != nil {
		b.Fatal(err)
	}
	defer instance.Close(b.Context()) //nolint:errcheck // it is in memory
	fuel := instance.ExportedGlobal(wasmfuel.Fuel)
	if fuel != nil {
		fuel.(api.MutableGlobal).Set(plenty)
	}
	start := time.Now()
	_, err = instance.ExportedFunction(p.call).Call(b.Context(), p.args...)
	took := time.Since(start)
	if exit := new(sys.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 0) {
		b.Fatal(err)
	}
	if fuel != nil {
		p.steps = plenty - int64(fuel.Get()) - int64(instance.ExportedGlobal(wasmfuel.Slice).Get())
	}
	if p.best[half] == 0 || took < p.best[half] {
		p.best[half] = took
	}
}
