package schema

import (
	"crypto/sha256"
	"sync"
)

// What inputs may have. With one more it forgets all.
const (
	maxInputs     = 20_000
	maxInputBytes = 8 << 20
)

// inputs are the plain input schemas that were checked lately: each is checked when its manifest is read, and
// again when the tool is served, and many tools have the same one.
var inputs = &memory{}

// memory remembers schemas by the SHA-256 of their text.
type memory struct {
	mu    sync.Mutex // guards the fields that follow
	known map[[sha256.Size]byte]*Schema
	bytes int // of their texts
}

func (m *memory) get(key [sha256.Size]byte) *Schema {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[key]
}

func (m *memory) put(key [sha256.Size]byte, s *Schema) {
	size := len(s.source.raw)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxInputs || m.bytes+size > maxInputBytes {
		m.known, m.bytes = map[[sha256.Size]byte]*Schema{}, 0
	}
	if m.known[key] == nil && size <= maxInputBytes {
		m.known[key] = s
		m.bytes += size
	}
}
