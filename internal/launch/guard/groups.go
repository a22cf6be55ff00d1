package guard

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"
)

const (
	// groupSlots is how many groups the table can hold. Beyond that, Linux still finds processes by
	// their environment.
	groupSlots = 4096
	groupBytes = groupSlots * 4
)

// Groups is a table of the ids of the live groups. The guard reads it through shared memory, which
// costs a call two stores; a message to the guard would wake it twice.
type Groups struct {
	file   *os.File   // nil unless shared
	mem    []byte     // nil unless shared
	mu     sync.Mutex // guards the fields that follow
	slots  []int32
	free   []*int32
	closed bool
}

// NewGroups returns a table. If shared memory was asked for and is not available, the table is not
// shared and err is the reason.
func NewGroups(shared bool) (*Groups, error) {
	if !shared {
		return tableOf(make([]int32, groupSlots)), nil
	}
	f, err := sharedFile()
	if err != nil {
		return tableOf(make([]int32, groupSlots)), err
	}
	mem, err := mapGroups(f)
	if err != nil {
		_ = f.Close() // nothing was written to it
		return tableOf(make([]int32, groupSlots)), err
	}
	t := tableOf(groupView(mem))
	t.file, t.mem = f, mem
	return t, nil
}

func tableOf(slots []int32) *Groups {
	t := &Groups{slots: slots}
	for i := range slots {
		t.free = append(t.free, &slots[i])
	}
	return t
}

// namelessFile returns a temporary file that is already unlinked. Its blocks are allocated by
// writing it: a store to a hole of a mapped file kills the process when the disk is full.
func namelessFile() (*os.File, error) {
	f, err := os.CreateTemp("", "orla-groups-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, groupBytes))
	if err := errors.Join(err, os.Remove(f.Name())); err != nil {
		_ = f.Close() // the file is discarded
		return nil, err
	}
	return f, nil
}

func mapGroups(f *os.File) ([]byte, error) {
	if err := f.Truncate(groupBytes); err != nil {
		return nil, err
	}
	return syscall.Mmap(int(f.Fd()), 0, groupBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
}

func groupView(mem []byte) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/4)
}

// Add adds a group and returns its slot, or nil if the table is full.
func (t *Groups) Add(pgid int) *int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		return nil
	}
	slot := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	atomic.StoreInt32(slot, int32(pgid))
	return slot
}

// Release removes a group. A nil slot is allowed.
func (t *Groups) Release(slot *int32) {
	if slot == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return // a process that Orla had stopped waiting for has ended after all
	}
	atomic.StoreInt32(slot, 0)
	t.free = append(t.free, slot)
}

// List lists the live groups.
func (t *Groups) List() []int {
	t.mu.Lock()
	defer t.mu.Unlock()
	var live []int
	for i := range t.slots {
		if g := atomic.LoadInt32(&t.slots[i]); g > 1 {
			live = append(live, int(g))
		}
	}
	return live
}

// Close frees the memory.
func (t *Groups) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.slots = true, nil
	if t.file == nil {
		return
	}
	_ = syscall.Munmap(t.mem) // nothing else uses this memory
	_ = t.file.Close()        // never written through the file
}
