//go:build unix

package wasm

import (
	"syscall"

	"github.com/orla-project/orla/internal/call/fault"
)

// memory is the linear memory of one instance. It reserves the address space that the instance may
// ever need. Only pages that are used take memory, and all of it is returned to the system after the
// call. It does not move when it grows.
type memory struct {
	region []byte
	peak   int64                  // the largest size so far, in bytes
	need   func(more int64) error // waits until so many bytes are free, and reserves them
	lacks  error                  // why the initial memory could not be reserved
}

// reserve returns memory that can grow to most bytes. It calls need before it grows.
func reserve(most int64, need func(more int64) error) (*memory, error) {
	region, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		return nil, fault.Wrap(fault.ExecutionFailed, err, "there is no room for %d bytes of memory", most).Again(true)
	}
	return &memory{region: region, need: need}, nil
}

// Reallocate returns size bytes; nil if they are too many, or if the call has ended before they were
// free. It returns the initial memory in any case, since wazero would panic otherwise.
func (m *memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.region)) {
		return nil
	}
	if more := int64(size) - m.peak; more > 0 {
		if err := m.need(more); err != nil && m.peak > 0 {
			return nil
		} else if err != nil {
			m.lacks = err
		}
	}
	m.peak = int64(size)
	return m.region[:size:size]
}

// Free does nothing: wazero may call it while the guest's last function is still on the stack.
// Later, free releases the memory.
func (m *memory) Free() {}

func (m *memory) free() {
	if m.region != nil {
		_ = syscall.Munmap(m.region) // it fails only for memory that is not mapped
		m.region = nil
	}
}
