package wasmfuel_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/wasm/wasmfuel"
)

// mostPiece is how many bytes may be moved while the host is not asked.
const mostPiece = 256 << 10

const moverPages = 64 // 4 MiB

// movers are functions of (to, from, length) that are one instruction each.
func movers() map[string]program {
	mover := func(instruction ...any) program {
		return program{
			types:    []string{of("\x7f\x7f\x7f", "")},
			funcs:    []function{{code: code(localGet, 0, localGet, 1, localGet, 2) + code(instruction...)}},
			memories: []string{"\x00" + unsigned(moverPages)},
			exports:  []string{export("f", 0), sized("memory") + "\x02\x00"},
		}
	}
	segment := make([]byte, 2<<20)
	for i := range segment {
		segment[i] = byte(i * 7 / 5)
	}
	withData := mover(misc, memoryInit, 1, 0)
	withData.count, withData.data = "\x02", []string{"\x01" + sized("little"), "\x01" + sized(string(segment))}
	little := mover(misc, memoryInit, 0, 0)
	little.count, little.data = withData.count, withData.data
	dropped := mover()
	dropped.count, dropped.data = withData.count, withData.data
	dropped.funcs[0].code = code(misc, 9, 1, localGet, 0, localGet, 1, localGet, 2, misc, memoryInit, 1, 0) // data.drop
	return map[string]program{
		"memory.fill": mover(misc, memoryFill, 0), "memory.copy": mover(misc, memoryCopy, 0, 0),
		"memory.init": withData, "memory.init of a small segment": little, "memory.init after data.drop": dropped,
	}
}

// moving is an instance of one of them, whose memory has something in it.
type moving struct {
	api.Module
	f api.Function
}

func (m *machine) moving(t *testing.T, module []byte) moving {
	t.Helper()
	i, err := m.InstantiateWithConfig(t.Context(), module, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		t.Fatal(err)
	}
	data := i.Memory()
	all, _ := data.Read(0, data.Size())
	for n := range all {
		all[n] = byte(n * 13 / 11)
	}
	if fuel := i.ExportedGlobal(wasmfuel.Fuel); fuel != nil {
		fuel.(api.MutableGlobal).Set(plenty)
	}
	return moving{i, i.ExportedFunction("f")}
}

func (m moving) memory() []byte {
	all, _ := m.Memory().Read(0, m.Memory().Size())
	return all
}

func instrumented(t *testing.T, p program, opts wasmfuel.Options) []byte {
	t.Helper()
	metered, _, err := wasmfuel.Instrument(p.bytes(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return metered
}

// SPEC S2: native code cannot be stopped, so that no single instruction moves more than a
// piece before the host is asked; and each pays for all it moves.
func TestS2MemoryIsMovedInPieces(t *testing.T) {
	const length = 2 << 20
	for _, test := range []struct {
		name     string
		to, from uint64
	}{
		{"memory.fill", 100, 7}, {"memory.copy", 100, length / 2}, {"memory.copy", length / 2, 100}, {"memory.init", 64, 0},
	} {
		t.Run(fmt.Sprint(test.name, " to ", test.to), func(t *testing.T) {
			m := newMachine(t)
			i := m.moving(t, instrumented(t, movers()[test.name], wasmfuel.Options{Slice: 1 << 30}))
			if _, err := i.f.Call(t.Context(), test.to, test.from, length); err != nil {
				t.Fatal(err)
			}
			if least := length/mostPiece - 1; m.yields < least {
				t.Errorf("the host was asked %d times, want %d at least", m.yields, least)
			}
			left := int64(i.ExportedGlobal(wasmfuel.Fuel).Get()) + int64(i.ExportedGlobal(wasmfuel.Slice).Get())
			if got, want := plenty-left, int64(4+length/64); got != want {
				t.Errorf("it paid %d steps, want %d", got, want)
			}
		})
	}
}

// What is moved in pieces comes to the same as what is moved at once, whatever overlaps, and
// what traps writes nothing.
func TestT37WhatIsMovedInPiecesIsTheSame(t *testing.T) {
	const size = moverPages << 16
	edges := []uint64{0, 1, 63, 1 << 12, mostPiece - 1, mostPiece, mostPiece + 1, 2 * mostPiece, 2*mostPiece + 5, 1 << 20, 2 << 20, size - mostPiece, size - 1, size, size + 1, 1<<32 - mostPiece, 1<<32 - 1}
	seed, rounds := maphash.MakeSeed(), needs.Rounds(40, 100)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // it is to be the same each time
	for name, p := range movers() {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			plain, metered := m.moving(t, p.bytes()), m.moving(t, instrumented(t, p, wasmfuel.Options{Slice: 1000}))
			for range rounds {
				args := []uint64{edges[random.IntN(len(edges))], edges[random.IntN(len(edges))], edges[random.IntN(len(edges))]}
				if random.IntN(2) == 0 {
					args[1] = (args[0] + uint64(random.IntN(3*mostPiece))) % size // they overlap
				}
				before := maphash.Bytes(seed, metered.memory())
				_, want := plain.f.Call(t.Context(), args...)
				_, got := metered.f.Call(t.Context(), args...)
				if (got == nil) != (want == nil) {
					t.Fatalf("of %v: %v, want %v", args, got, want)
				}
				if !bytes.Equal(plain.memory(), metered.memory()) {
					t.Fatalf("of %v: the memory is another", args)
				}
				if got != nil && maphash.Bytes(seed, metered.memory()) != before {
					t.Fatalf("of %v: it trapped, and had written something", args)
				}
			}
		})
	}
}

// The host ends an instruction between two of its pieces.
func TestS2AMoveIsEndedInTheMiddle(t *testing.T) {
	r := wazero.NewRuntime(t.Context())
	defer r.Close(t.Context()) //nolint:errcheck // it is in memory
	left := 4
	stop := func() {
		if left--; left == 0 {
			panic(errors.New("not wanted any more"))
		}
	}
	if _, err := r.NewHostModuleBuilder(wasmfuel.Host).NewFunctionBuilder().WithFunc(stop).Export(wasmfuel.Yield).Instantiate(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := (&machine{Runtime: r}).moving(t, instrumented(t, movers()["memory.fill"], wasmfuel.Options{}))
	if _, err := i.f.Call(t.Context(), 0, 0xff, moverPages<<16); err == nil {
		t.Fatal("it was not ended")
	}
	if filled := bytes.LastIndex(i.memory(), []byte("\xff\xff\xff\xff")); filled > 5*mostPiece {
		t.Errorf("it went on for %d bytes", filled)
	}
}

// A module that moves memory it does not have, or data that it does not count, is as wrong
// as before.
func TestT37WhatMovesNoMemoryIsRefused(t *testing.T) {
	for name, p := range movers() {
		p.memories, p.exports = nil, p.exports[:1]
		metered, _, err := wasmfuel.Instrument(p.bytes(), wasmfuel.Options{})
		if err != nil {
			continue
		}
		if _, err := newMachine(t).CompileModule(t.Context(), metered); err == nil {
			t.Errorf("%s without a memory was compiled", name)
		}
	}
	uncounted := movers()["memory.init"]
	uncounted.count = ""
	if _, err := newMachine(t).CompileModule(t.Context(), instrumented(t, uncounted, wasmfuel.Options{})); err == nil {
		t.Error("memory.init without a count of data segments was compiled")
	}
}
