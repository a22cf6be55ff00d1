//go:build unix

package wasm

import (
	"syscall"

	"github.com/orla-project/orla/internal/call/fault"
)

// memory is the linear memory of one instance: as much of the address space as
// it may ever need, of which only what is touched takes memory, and all of which
// goes back to the system when the call is over. It does not move when it grows.
type memory struct {
	region []byte
	peak   int64                  // bytes that the guest has had
	need   func(more int64) error // waits for so many bytes to be free
	lacks  error                  // why the guest could not have what it begins with
}

// reserve returns memory that can grow up to most bytes, and calls need before it does.
func reserve(most int64, need func(more int64) error) (*memory, error) {
	region, err := syscall.Mmap(-1, 0, int(most), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		f := fault.Wrap(fault.ExecutionFailed, err, "there is no room for %d bytes of memory", most)
		f.Retry = new(true)
		return nil, f
	}
	return &memory{region: region, need: need}, nil
}

// Reallocate gives the guest so many bytes, nil if they are too many, or its call has ended
// before they were free. What it begins with it gets in any case, or wazero would panic.
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

// Free does nothing: wazero calls it while the guest's last function may still be
// on the stack. free is called when it is not.
func (m *memory) Free() {}

func (m *memory) free() {
	if m.region != nil {
		_ = syscall.Munmap(m.region) // it fails for what is not mapped alone
		m.region = nil
	}
}
