package testkit

import (
	"bytes"
	"strings"
	"sync"
)

// Log keeps what is written to it, and may be read meanwhile.
type Log struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Has reports whether a text has been written.
func (l *Log) Has(text string) bool { return strings.Contains(l.String(), text) }
