package wasm_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/internal/wasm"
)

// times repeats code with a counter, the local 0.
func times(n int64, body ...any) []byte {
	return code(i32Const, n, localSet, 0, loop, empty, code(body...), localGet, 0, i32Const, int64(1), i32Sub, localTee, 0, branchIf, 0, end)
}

// SPEC S2: the runtime keeps each reference that ref.func makes until the call is over, so
// that it counts, and there is an end of them.
func TestS2ReferencesAreCounted(t *testing.T) {
	const made, bytes = 100_000, 56 * 100_000
	r := newRuntime(t, wasm.Options{})
	free := r.Memory()
	m := compile(t, r, spinning(times(made, refFunc, 0, drop)), wasm.Limits{Fuel: endless})
	leave := running(t, m, "", turns.Owner{})
	testkit.Eventually(t, "it makes them", func() bool { return free-r.Memory() >= bytes })
	leave()
	if left := r.Memory(); left != free {
		t.Errorf("%d bytes are free afterwards, of %d", left, free)
	}
	forever := buffered(loop, empty, refFunc, 0, drop, branch, 0, end, unreachable)
	_, err := compile(t, r, forever.bytes(), wasm.Limits{Fuel: 250_000}).Run(t.Context(), nil, mostOutput)
	fails(t, err, fault.ExecutionFailed, false, "references to functions", "1048576")
}

// SPEC S2: what an instance takes counts before it is made: the entries of element segments,
// and of tables.
func TestS2AnInstanceIsCounted(t *testing.T) {
	const entries = 100_000
	segment := buffered(loop, empty, branch, 0, end, unreachable)
	segment.elements = slices.Concat(count(1), []byte{1, 0}, count(entries), make([]byte, entries)) // passive
	table := buffered(loop, empty, branch, 0, end, unreachable)
	table.tables = [][]byte{slices.Concat([]byte{funcref, 0}, count(8*entries))}
	for name, module := range map[string]assembly{"an element segment": segment, "a table": table} {
		t.Run(name, func(t *testing.T) {
			r := newRuntime(t, wasm.Options{})
			free := r.Memory()
			leave := running(t, compile(t, r, module.bytes(), wasm.Limits{Fuel: endless}), "", turns.Owner{}, turns.Owner{})
			defer leave()
			testkit.Eventually(t, "both hold it", func() bool { return free-r.Memory() >= 2*(64*entries-64<<10) })
		})
	}
}

// deep is a module that calls itself so often, and then never ends.
func deep(calls int64) assembly {
	a := buffered(i32Const, calls, call, 2, i64Const, int64(0))
	a.types = append(a.types, funcType{[]byte{i32}, nil})
	a.funcs = append(a.funcs, function{of: 3, body: code(
		localGet, 0, i32Eqz, ifThen, empty, loop, empty, branch, 0, end, end, localGet, 0, i32Const, int64(1), i32Sub, call, 2)})
	return a
}

// SPEC S2: the call stack counts, as far as a call has come to need it, and no further than the
// runtime lets it grow.
func TestS2TheCallStackIsCounted(t *testing.T) {
	for calls, want := range map[int64][2]int64{10: {0, 256 << 10}, 5_000: {1 << 20, 32 << 20}, 1_000_000: {100 << 20, 130 << 20}} {
		r := newRuntime(t, wasm.Options{})
		free := r.Memory()
		leave := running(t, compile(t, r, deep(calls).bytes(), wasm.Limits{Fuel: endless}), "", turns.Owner{})
		defer leave()
		testkit.Eventually(t, "it holds its stack", func() bool { n, _ := r.Compute(0); return n == 1 && free-r.Memory() >= want[0] })
		if held := free - r.Memory(); held > want[1] {
			t.Errorf("%d calls deep it holds %d bytes", calls, held)
		}
	}
}

// SPEC N2: who has no room for a deep call stack waits for it, and the other calls go on.
func TestN2ADeepCallStackWaits(t *testing.T) {
	r := newRuntime(t, wasm.Options{TotalMemory: 64 << 20})
	m := compile(t, r, deep(1_000_000).bytes(), wasm.Limits{Fuel: endless})
	leave := running(t, m, "", turns.Owner{Caller: "a"}, turns.Owner{Caller: "a"}, turns.Owner{Caller: "a"})
	defer leave()
	testkit.Eventually(t, "two of them wait", func() bool { n, waiting := r.Compute(0); return r.Running() == 3 && n == 1 && waiting == 0 })
	answersSoon(t, compile(t, r, buffered(echoing).bytes(), wasm.Limits{}).For(turns.Owner{Caller: "b"}))
}

// SPEC S2: the host of WASI copies a path of any length, and keeps something for each subscription:
// it is asked for neither of too many.
func TestS2WASIIsGivenNoHugeLengths(t *testing.T) {
	const path, invalid = "37", "28"
	for _, c := range []struct {
		name   string
		wide   []int // parameters that are i64
		all    int
		length int
		most   int64
		errno  string
	}{
		{"path_create_directory", nil, 3, 2, 4096, path},
		{"path_filestat_get", nil, 5, 3, 4096, path},
		{"path_filestat_set_times", []int{4, 5}, 7, 3, 4096, path},
		{"path_link", nil, 7, 3, 4096, path},
		{"path_link", nil, 7, 6, 4096, path},
		{"path_open", []int{5, 6}, 9, 3, 4096, path},
		{"path_readlink", nil, 6, 2, 4096, path},
		{"path_remove_directory", nil, 3, 2, 4096, path},
		{"path_rename", nil, 6, 2, 4096, path},
		{"path_rename", nil, 6, 5, 4096, path},
		{"path_symlink", nil, 5, 1, 4096, path},
		{"path_symlink", nil, 5, 4, 4096, path},
		{"path_unlink_file", nil, 3, 2, 4096, path},
		{"poll_oneoff", nil, 4, 2, 4096, invalid},
	} {
		t.Run(fmt.Sprintf("%s, %d", c.name, c.length), func(t *testing.T) {
			for _, length := range []int64{c.most, c.most + 1, -1} {
				var params, args []byte
				for p := range c.all {
					switch {
					case slices.Contains(c.wide, p):
						params, args = append(params, i64), append(args, code(i64Const, int64(0))...)
					case p == c.length:
						params, args = append(params, i32), append(args, code(i32Const, length)...)
					default:
						params, args = append(params, i32), append(args, code(i32Const, int64(0))...)
					}
				}
				a := assembly{
					types:   []funcType{{params, []byte{i32}}, {nil, []byte{i32}}},
					imports: []funcImport{{"wasi_snapshot_preview1", c.name, 0, count(0)}},
					funcs:   []function{{of: 1, body: code(args, call, 0)}},
					memory:  []byte{0, 4},
					exports: []export{{"memory", 2, 0}, {"run", 0, 1}},
				}
				_, err := compile(t, shared, a.bytes(), wasm.Limits{WASI: true}).Run(t.Context(), nil, mostOutput)
				refused := err != nil && strings.Contains(err.Error(), "code "+c.errno)
				if (length != c.most) != refused {
					t.Errorf("%d: got %v", length, err)
				}
			}
		})
	}
}
