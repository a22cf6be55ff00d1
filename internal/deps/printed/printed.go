// Package printed splits what an installer prints into lines, and keeps the last ones.
package printed

import (
	"bytes"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	mostLines = 8    // that are kept
	longest   = 1000 // bytes of a line
)

// Lines are those of the two streams of a program. Each stream has one writer.
type Lines struct {
	Each func(line string) // is told of each line
	// Withdrawn are the versions that the lines say were withdrawn, up to a number that is enough to look at. It may be read
	// when both streams have ended.
	Withdrawn []Withdrawal

	mu     sync.Mutex // guards Withdrawn
	open   [2][]byte  // the line of each stream that has not ended
	recent [2][]string
}

// Write takes a part of a stream: 0 is stdout, and 1 is stderr.
func (l *Lines) Write(stream int, b []byte) {
	for {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if room := longest - len(l.open[stream]); room > 0 {
			l.open[stream] = append(l.open[stream], line[:min(room, len(line))]...)
		}
		if !ended {
			return
		}
		l.end(stream)
		b = rest
	}
}

func (l *Lines) end(stream int) {
	text := strings.TrimSpace(strings.ToValidUTF8(string(l.open[stream]), "\uFFFD"))
	l.open[stream] = l.open[stream][:0]
	if text == "" {
		return
	}
	l.recent[stream] = append(l.recent[stream], text)
	if len(l.recent[stream]) > mostLines {
		l.recent[stream] = l.recent[stream][1:]
	}
	if w, ok := withdrawn(text); ok {
		l.add(w)
	}
	l.Each(text)
}

func (l *Lines) add(w Withdrawal) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.Withdrawn) < mostWithdrawn && !slices.Contains(l.Withdrawn, w) {
		l.Withdrawn = append(l.Withdrawn, w)
	}
}

// Flush ends the lines that have not ended.
func (l *Lines) Flush() {
	for stream := range l.open {
		l.end(stream)
	}
}

// Last returns the last lines: those of stderr, if there are any.
func (l *Lines) Last() string {
	list := l.recent[1]
	if len(list) == 0 {
		list = l.recent[0]
	}
	return brief.Cut(strings.Join(list, "\n"), longest)
}
