// Package tail keeps the last lines of a stream, and reads streams by lines.
//
// What a process prints may be anything and of any length, so everything here
// is bounded, and nothing looks at what a line says.
//
// Its invariant: a Buffer never holds more than 64 KiB of text and 500 lines.
package tail

import (
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// maxBytes bounds the text that a Buffer holds, and so one line.
	maxBytes = 64 << 10
	// maxLines bounds the lines that a Buffer holds.
	maxLines = 500
)

// Line is one line of a stream, without its end.
type Line struct {
	Time time.Time // when it was complete
	Text string    // as it was printed, so not always UTF-8
}

// Buffer keeps the last lines of a stream. The zero Buffer is empty and takes
// no memory until lines come. Its methods may be called from any goroutine.
type Buffer struct {
	mu    sync.Mutex // guards the fields that follow
	lines []Line     // oldest first
	bytes int        // of their texts
}

// Append adds a copy of a line that is complete now, and lets go of the oldest
// ones that there is no room for any more. A line over 64 KiB is cut, and ends
// with a CutMark.
func (b *Buffer) Append(line []byte) {
	text := string(line)
	if len(line) > maxBytes {
		kept := whole(line[:maxBytes-len(CutMark(len(line)))])
		text = string(kept) + CutMark(len(line)-len(kept))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, Line{time.Now(), text}) // stamped here, so that times are in order
	b.bytes += len(text)
	for b.bytes > maxBytes || len(b.lines) > maxLines {
		b.bytes -= len(b.lines[0].Text)
		b.lines[0] = Line{} // the array outlives it
		b.lines = b.lines[1:]
	}
}

// Last returns the last n lines, or as many as there are, oldest first. The
// slice is the caller's.
func (b *Buffer) Last(n int) []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(max(n, 0), len(b.lines))
	return append([]Line(nil), b.lines[len(b.lines)-n:]...)
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
