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
	// groupSlots bounds the groups that the guard is told of at one time. Past
	// it, Linux still finds processes by their environment.
	groupSlots = 4096
	groupBytes = groupSlots * 4
)

// Groups holds the ids of the groups that live now. The guard sees it when
// its memory is shared: that costs a call two stores, where a message to the
// guard would wake it twice.
type Groups struct {
	file   *os.File   // nil unless it is shared
	mem    []byte     // the same
	mu     sync.Mutex // guards the fields that follow
	slots  []int32
	free   []*int32
	closed bool
}

// NewGroups returns a table that can be used in any case, and the reason
// when it should be shared and cannot be.
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

// namelessFile returns a file in the folder for temporary ones that has no
// name any more. It is written once: a store into a hole of a mapped file is
// deadly when the disk is full.
func namelessFile() (*os.File, error) {
	f, err := os.CreateTemp("", "orla-groups-*")
	if err != nil {
		return nil, err
	}
	_, err = f.Write(make([]byte, groupBytes))
	if err := errors.Join(err, os.Remove(f.Name())); err != nil {
		_ = f.Close() // of no use to anybody
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

// Add enters a group and returns its slot, or nil when there is none left.
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

// Release strikes a group out. A nil slot is none.
func (t *Groups) Release(slot *int32) {
	if slot == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return // a process that was given up has ended after all
	}
	atomic.StoreInt32(slot, 0)
	t.free = append(t.free, slot)
}

// List lists the groups that live now.
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

// Close gives the memory back.
func (t *Groups) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed, t.slots = true, nil
	if t.file == nil {
		return
	}
	_ = syscall.Munmap(t.mem) // the process has no other use for the range
	_ = t.file.Close()        // never written through the file
}
