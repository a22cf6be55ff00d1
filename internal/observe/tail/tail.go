// Package tail keeps the last lines of a stream, and reads streams line by line.
//
// A process may print anything, in lines of any length. So everything here is bounded, and nothing
// depends on what a line says.
//
// Its invariant: a Ring never exceeds its Bounds.
package tail

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"
)

// kept bounds a Buffer, which explains how a process ended; the log has more.
var kept = Bounds{Bytes: 8 << 10, Records: 50}

// Buffer keeps the last lines of a stream. The zero Buffer is empty and uses no memory. Its methods
// may be called from any goroutine.
type Buffer struct {
	mu    sync.Mutex // guards lines
	lines Ring
}

// Append adds a copy of a complete line, and removes the oldest ones if there is no room. A line
// over 8 KiB is cut, and ends with a CutMark.
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

// Last returns the last n lines, or all if there are fewer, oldest first. They are as the process
// printed them, so they may not be UTF-8.
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

// Short returns the last lines, short enough for an error message: 10 at most, of 2 KiB of UTF-8. b may be nil.
func (b *Buffer) Short() string {
	if b == nil {
		return ""
	}
	const lines, size = 10, 2 << 10
	all := strings.ToValidUTF8(strings.Join(b.Last(lines), "\n"), "\uFFFD")
	if len(all) > size {
		all = "…" + strings.ToValidUTF8(all[len(all)-size:], "")
	}
	return all
}

// CutMark is the text at the end of a line that was cut.
func CutMark(dropped int) string { return fmt.Sprintf(" [cut: %d bytes more]", dropped) }

// whole returns start without an incomplete character at its end.
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
