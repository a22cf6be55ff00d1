// Package tail keeps the last lines of a stream, for whoever asks what a
// process said before something happened. It is bounded in lines and in bytes,
// and costs nothing before the first line.
package tail

import (
	"bufio"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// MaxLine bounds a line in bytes; what is over is dropped, and said.
	MaxLine = 64 << 10
	// maxBytes and maxLines bound what a Buffer keeps.
	maxBytes = 64 << 10
	maxLines = 500
)

// cutMark stands at the end of a line that was longer.
const cutMark = " […]"

// Line is one line, without its end.
type Line struct {
	Time time.Time
	Text string
}

// Buffer keeps the last lines that were appended. The zero value is empty and
// ready. Its methods may be called from any goroutine.
type Buffer struct {
	mu    sync.Mutex // guards the fields that follow
	lines []Line     // oldest first
	bytes int
}

// Append adds a line. It copies what it keeps.
func (b *Buffer) Append(line []byte) {
	text := string(line[:min(len(line), MaxLine)])
	if len(line) > MaxLine {
		text += cutMark
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, Line{time.Now(), text})
	b.bytes += len(text)
	drop := 0
	for len(b.lines)-drop > 1 && (b.bytes > maxBytes || len(b.lines)-drop > maxLines) {
		b.bytes -= len(b.lines[drop].Text)
		b.lines[drop].Text = ""
		drop++
	}
	b.lines = b.lines[drop:]
}

// Last returns the last n lines, or as many as there are, oldest first.
func (b *Buffer) Last(n int) []Line {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Line(nil), b.lines[max(0, len(b.lines)-n):]...)
}

// Lines gives each line of r, without its end, to each until r ends. A line that
// is over MaxLine is cut and marked. each must not keep the slice.
func Lines(r io.Reader, each func(line []byte)) {
	in := bufio.NewReaderSize(r, 4<<10)
	var line []byte
	cut := false
	give := func() {
		if cut {
			line = append(line, cutMark...)
		}
		each(line)
		line, cut = line[:0], false
		if cap(line) > 16<<10 {
			line = nil // one long line must not be paid for for ever
		}
	}
	for {
		part, err := in.ReadSlice('\n')
		whole := len(part) > 0 && part[len(part)-1] == '\n'
		if whole {
			part = part[:len(part)-1]
		}
		room := MaxLine - len(line)
		cut = cut || len(part) > room
		line = append(line, part[:min(len(part), room)]...)
		switch {
		case whole:
			give()
		case err != nil && !errors.Is(err, bufio.ErrBufferFull):
			if len(line) > 0 {
				give() // the last one need not have an end
			}
			return
		}
	}
}
