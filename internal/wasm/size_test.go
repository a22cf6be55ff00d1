package wasm

import (
	"encoding/binary"
	"runtime"
	"strings"
	"testing"
)

// SPEC S2: what a compiled module keeps in memory is counted, also of a small module with many locals, which it writes run-length.
func TestS2WhatAModuleKeepsIsCounted(t *testing.T) {
	const modules, locals = 40, 40_000
	sized := func(s string) string { return string(binary.AppendUvarint(nil, uint64(len(s)))) + s }
	module := func(n byte) []byte {
		body := "\x01" + string(binary.AppendUvarint(nil, locals)) + "\x7f\x41" + string([]byte{n}) + "\x1a\x0b" // a constant, which is dropped
		return []byte("\x00asm\x01\x00\x00\x00" + "\x01" + sized("\x01\x60\x00\x00") + "\x03" + sized("\x01\x00") + "\x0a" + sized("\x01"+sized(body)))
	}
	r := NewRuntime(Options{})
	defer r.Close()
	inUse := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before, counted := inUse(), int64(0)
	var kept []*code
	for n := range modules {
		c, err := r.compile(module(byte(n)), Limits{}.filled())
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, c)
		counted += c.size
	}
	if used := inUse() - before; used > 2*counted {
		t.Errorf("%d modules have %d KiB, and %d KiB are counted", modules, used>>10, counted>>10)
	}
	for _, c := range kept {
		c.close(t.Context())
	}
}

// SPEC S2: what is counted of a large program leaves room for other modules: where each takes the other's place, all their calls
// compile.
func TestS2ALargeProgramLeavesRoomForOthers(t *testing.T) {
	const large = 17 << 20 // as a Go program that serves HTTP
	sized := func(s string) string { return string(binary.AppendUvarint(nil, uint64(len(s)))) + s }
	r := NewRuntime(Options{})
	defer r.Close()
	c, err := r.compile([]byte("\x00asm\x01\x00\x00\x00"+"\x0b"+sized("\x01\x01"+sized(strings.Repeat("x", large)))), Limits{}.filled())
	if err != nil {
		t.Fatal(err)
	}
	if c.size > maxCached*3/4 {
		t.Errorf("%d MiB are counted, of %d MiB that are kept", c.size>>20, maxCached>>20)
	}
	c.close(t.Context())
}
