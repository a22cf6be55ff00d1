package memfile

import (
	"bytes"
	"errors"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// SPEC L4: what is kept is read as it was, in parts, and dropped once.
func TestL4WhatIsKeptIsRead(t *testing.T) {
	var a Area
	text := strings.Repeat("0123456789abcdef", 10_001)
	kept, other, empty := Keep(&a, text, nil), Keep(&a, []byte(text[1:]), nil), Keep(&a, "", nil)
	p := make([]byte, 1000)
	for from := 0; from < len(text); from += 997 {
		n, err := kept.Read(p, from)
		if want := text[from:min(from+len(p), len(text))]; err != nil || string(p[:n]) != want {
			t.Fatalf("from %d: %v, %d bytes", from, err, n)
		}
	}
	for _, from := range []int{len(text), len(text) + 1} {
		if n, err := kept.Read(p, from); n != 0 || err != nil {
			t.Errorf("behind the end: %d, %v", n, err)
		}
	}
	if n, err := empty.Read(p, 0); n != 0 || err != nil || kept.Size() != len(text) {
		t.Errorf("%d, %v, %d", n, err, kept.Size())
	}
	kept.Drop()
	kept.Drop()
	empty.Drop()
	if _, err := kept.Read(p, 0); !errors.Is(err, ErrGone) {
		t.Errorf("what was dropped: %v", err)
	}
	whole := make([]byte, len(text))
	if n, err := other.Read(whole, 0); err != nil || string(whole[:n]) != text[1:] {
		t.Errorf("the other: %v, %d bytes", err, n)
	}
	other.Drop()
	if a.file != nil || a.live != 0 {
		t.Errorf("%d are in the file after all were dropped", a.live)
	}
}

// SPEC N2: a large text is kept in parts, between which others may work.
func TestN2ALargeTextIsKeptInParts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has files in memory")
	}
	var a Area
	rests := 0
	b := Keep(&a, bytes.Repeat([]byte("x"), 10*piece+1), func() { rests++ })
	defer b.Drop()
	if rests != 10 {
		t.Errorf("there were %d rests, want 10", rests)
	}
}

// SPEC L4: on Linux neither the heap nor the file has the memory of what was dropped, and the heap has nothing of what
// is kept.
func TestL4NothingIsInTheHeap(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has files in memory")
	}
	var a Area
	const each = 1 << 20
	text := bytes.Repeat([]byte("x"), each+1)
	first := Keep(&a, text, nil)
	defer first.Drop()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 64 {
		Keep(&a, text, nil).Drop()
	}
	kept := make([]*Bytes, 8)
	for i := range kept {
		kept[i] = Keep(&a, text, nil)
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 72*4<<10 {
		t.Errorf("72 MiB take %d bytes of the heap", took)
	}
	if has := resident(t, &a); has > 10*each {
		t.Errorf("9 MiB take %d bytes", has)
	}
	for _, k := range kept {
		k.Drop()
	}
	if has := resident(t, &a); has > 2*each {
		t.Errorf("1 MiB takes %d bytes", has)
	}
}

// resident returns how many bytes of memory the file of an Area takes.
func resident(t *testing.T, a *Area) int64 {
	t.Helper()
	info, err := a.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Blocks * 512
}

// SPEC L4: where there is no file in memory, the heap has the bytes.
func TestL4WithoutAFile(t *testing.T) {
	b := &Bytes{size: 3, area: new(Area), heap: []byte("abc")}
	p := make([]byte, 9)
	if n, err := b.Read(p, 1); err != nil || string(p[:n]) != "bc" {
		t.Errorf("%q, %v", p[:n], err)
	}
	b.Drop()
	if _, err := b.Read(p, 1); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

// SPEC S2: a read never gets bytes of another, whatever is dropped meanwhile.
func TestS2ReadsWhileOthersAreDropped(t *testing.T) {
	var a Area
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			text := bytes.Repeat([]byte{byte('a' + i)}, 100_000)
			for range 50 {
				b := Keep(&a, text, nil)
				var reader sync.WaitGroup
				reader.Go(func() {
					p := make([]byte, len(text))
					n, err := b.Read(p, 0)
					if err == nil && !bytes.Equal(p[:n], text) || err != nil && !errors.Is(err, ErrGone) {
						t.Errorf("%v, or bytes of another", err)
					}
				})
				b.Drop()
				reader.Wait()
			}
		})
	}
	all.Wait()
}
