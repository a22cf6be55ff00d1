// Package memfile keeps bytes in memory that the garbage collector does not count. It keeps as much garbage as
// several times of what is in use, so that a few large things that nobody reads would make the whole process large.
//
// On Linux the bytes are in a file without a name (memfd_create), which is never mapped: they are copied out in parts.
// They are never on a disk, except in swap. On other systems, or where the file cannot grow, they are in the heap.
package memfile

import (
	"errors"
	"os"
	"sync"
	"unsafe"
)

// ErrGone is the error of a read of what was dropped.
var ErrGone = errors.New("it is not kept any more")

// Area is where bytes are kept. Its zero value is an empty one. Its methods may be called from any goroutine.
type Area struct {
	mu   sync.Mutex // guards the fields that follow
	file *os.File   // nil until it is needed, and again when nothing is kept
	end  int64      // of what was written; no place is used twice, and what was dropped is a hole
	live int        // how many Bytes are in the file
}

// Bytes are bytes in an Area. They do not change. Their methods may be called from any goroutine.
type Bytes struct {
	size int
	area *Area
	at   int64 // in file

	mu   sync.RWMutex // guards the fields that follow, and the place in the file against its next use
	file *os.File     // nil if the bytes are in heap, or dropped
	heap []byte       // nil if they are in file, or dropped
}

// Keep keeps a copy of a text. It never fails. Between its parts it calls rest, if that is not nil: the kernel is busy
// with each, and so is the processor, for which others wait.
func Keep[T string | []byte](a *Area, text T, rest func()) *Bytes {
	b := &Bytes{size: len(text), area: a}
	if b.size == 0 {
		return b
	}
	if b.file, b.at = a.take(int64(b.size)); b.file == nil {
		b.heap = []byte(text)
		return b
	}
	for done := 0; done < b.size; {
		n, err := b.file.WriteAt(bytesOf(text[done:min(done+piece, b.size)]), b.at+int64(done))
		if err != nil { // there is no memory
			a.give(b.at, int64(b.size))
			b.file, b.heap = nil, []byte(text)
			return b
		}
		if done += n; rest != nil && done < b.size {
			rest()
		}
	}
	return b
}

// piece is how many bytes are written at once.
const piece = 128 << 10

// bytesOf returns the bytes of a text without a copy. They are only read.
func bytesOf[T string | []byte](text T) []byte {
	switch text := any(text).(type) {
	case []byte:
		return text
	case string:
		return unsafe.Slice(unsafe.StringData(text), len(text))
	}
	return nil // there is no other type
}

// Size returns how many bytes there are, also after they were dropped.
func (b *Bytes) Size() int { return b.size }

// Read copies bytes from an offset on into p, as many as fit, and returns how many there were. It fails only with
// ErrGone, or if the system cannot read its own memory.
func (b *Bytes) Read(p []byte, from int) (int, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	p = p[:min(len(p), b.size-min(from, b.size))]
	switch {
	case len(p) == 0:
		return 0, nil
	case b.heap != nil:
		return copy(p, b.heap[from:]), nil
	case b.file != nil:
		return b.file.ReadAt(p, b.at+int64(from))
	}
	return 0, ErrGone
}

// Drop frees the bytes. Reads that have begun end first. A second call does nothing.
func (b *Bytes) Drop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heap = nil
	if b.file != nil {
		b.file = nil
		b.area.give(b.at, int64(b.size))
	}
}

// take returns the file, and a place in it; nil if there is none.
func (a *Area) take(size int64) (*os.File, int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file == nil {
		a.file, a.end = create(), 0
	}
	if a.file == nil {
		return nil, 0
	}
	at := a.end
	page := int64(os.Getpagesize()) // a hole is made of whole pages
	a.end = (at + size + page - 1) / page * page
	a.live++
	return a.file, at
}

// give frees a place. Without any in use the file is closed. That takes the kernel a while, in which others take places.
func (a *Area) give(at, size int64) {
	a.mu.Lock()
	file := a.file
	a.live--
	last := a.live == 0
	if last {
		a.file = nil
	}
	a.mu.Unlock()
	if last {
		_ = file.Close() // nobody needs what is in it
		return
	}
	punch(file, at, size) // it does nothing if another one was the last meanwhile
}
