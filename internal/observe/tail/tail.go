// Package tail keeps the last lines of a stream, and reads streams by lines.
//
// What a process prints may be anything and of any length, so everything here
// is bounded, and nothing looks at what a line says.
//
// Its invariant: a Ring never holds more than its Bounds say.
package tail

import (
	"fmt"
	"sync"
	"unicode/utf8"
)

// kept bounds a Buffer. It is there to explain how a process ended; what people
// read at length is the log.
var kept = Bounds{Bytes: 8 << 10, Records: 50}

// Buffer keeps the last lines of a stream. The zero Buffer is empty and takes
// no memory until lines come. Its methods may be called from any goroutine.
type Buffer struct {
	mu    sync.Mutex // guards lines
	lines Ring
}

// Append adds a copy of a line that is complete now, and lets go of the oldest
// ones that there is no room for any more. A line over 8 KiB is cut, and ends
// with a CutMark.
func (b *Buffer) Append(line []byte) {
	var mark string
	if room := kept.Bytes - HeadSize; len(line) > room {
		short := whole(line[:room-len(CutMark(len(line)))])
		line, mark = short, CutMark(len(line)-len(short))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines.Push(kept, line, []byte(mark))
}

// Last returns the last n lines as they were printed, so not always UTF-8, or
// as many as there are, oldest first.
func (b *Buffer) Last(n int) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	records := b.lines.Records()
	var last []string
	for _, record := range records[max(0, len(records)-max(n, 0)):] {
		last = append(last, string(record))
	}
	return last
}

// CutMark is what stands at the end of a line that was cut, in place of what
// was dropped.
func CutMark(dropped int) string { return fmt.Sprintf(" [cut: %d bytes more]", dropped) }

// whole returns the start of a line less the character that its end splits.
func whole(start []byte) []byte {
	for back := 1; back < utf8.UTFMax && back <= len(start); back++ {
		if tail := start[len(start)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return start[:len(start)-back]
			}
			break
		}
	}
	return start
}
