package watch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// kernelWatches counts the watches of this process in the kernel, and the
// instances that hold them.
func kernelWatches(t testing.TB) (watches, instances int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to != "anon_inode:inotify" {
			continue
		}
		instances++
		text, err := os.ReadFile("/proc/self/fdinfo/" + fd.Name())
		if err != nil {
			t.Fatal(err)
		}
		watches += strings.Count(string(text), "inotify wd:")
	}
	return watches, instances
}

// E3: what the kernel dropped is found by looking, and only what truly changed
// makes a Change.
func TestOverflowFindsWhatChanged(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
	mustDo(t, err)
	limit, err := strconv.Atoi(strings.TrimSpace(string(text)))
	mustDo(t, err)
	if limit > 1<<17 {
		t.Skipf("the kernel queues %d events", limit)
	}
	root, other := t.TempDir(), t.TempDir()
	hub := NewHub()
	opts := Options{Hub: hub, Content: true, Debounce: 5 * time.Millisecond, Globs: []string{"noise-*"}}
	w, calm := New(root, opts), New(other, opts)
	stop := serving(t, w, calm)
	defer stop()
	eventually(t, "both folders are watched", func() bool { n, _ := kernelWatches(t); return n >= 2 })

	// While nobody listens, the kernel's queue fills with events that count for
	// nothing, and drops those that do.
	hub.mu.Lock()
	noise := [2]*os.File{}
	for i := range noise {
		noise[i], err = os.Create(filepath.Join(root, "noise-"+strconv.Itoa(i)))
		mustDo(t, err)
		defer func() { _ = noise[i].Close() }()
	}
	for i := range limit + 8192 {
		_, err := noise[i%2].WriteString("x")
		mustDo(t, err)
	}
	lost := filepath.Join(root, "a", "lost")
	mustDo(t, os.MkdirAll(filepath.Dir(lost), 0o700), os.WriteFile(lost, nil, 0o600))
	hub.mu.Unlock()

	if c := nextChange(t, w); c.Path != lost {
		t.Errorf("Change names %q, want %q", c.Path, lost)
	}
	later := filepath.Join(root, "a", "later")
	mustDo(t, os.WriteFile(later, nil, 0o600))
	if c := nextChange(t, w); c.Path != later {
		t.Errorf("Change names %q, want %q", c.Path, later)
	}
	later = filepath.Join(other, "later")
	mustDo(t, os.WriteFile(later, nil, 0o600))
	if c := nextChange(t, calm); c.Path != later {
		t.Errorf("where nothing had changed, Change names %q, want %q", c.Path, later)
	}
}
