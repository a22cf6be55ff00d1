package watch

import (
	"hash/maphash"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// E3: a save within one tick of the file system's clock looks like no save.
func TestPollingReadsOnceMoreWhatWasFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "main.py")
		save := func(content string, at time.Time) {
			mustDo(t, os.WriteFile(file, []byte(content), 0o600), os.Chtimes(file, at, at))
		}
		save("one", time.Unix(1, 0))
		w := New(filepath.Dir(file), Options{Poll: true, Content: true})
		stop := serving(t, w)
		defer stop()
		synctest.Wait()
		now := time.Now()
		save("two", now)
		nextChange(t, w)
		save("six", now)
		if c := nextChange(t, w); c.Path != file {
			t.Errorf("Change names %q, want %q", c.Path, file)
		}
	})
}

// E3: an event says that a file was written, whatever it looks like.
func TestWrittenFileIsReadAgain(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "main.py")
	old := time.Unix(1, 0)
	mustDo(t, os.WriteFile(file, []byte("one"), 0o600), os.Chtimes(file, old, old))
	w := New(root, Options{Debounce: 400 * time.Millisecond, Content: true})
	stop := serving(t, w)
	defer stop()
	probe(t, w, root, root)
	mustDo(t, os.WriteFile(file, []byte("two"), 0o600), os.Chtimes(file, old, old))
	if c := nextChange(t, w); c.Path != file {
		t.Errorf("Change names %q, want %q", c.Path, file)
	}
}

// Nobody waits for a data set to be read.
func TestLargeContentsAreNotRead(t *testing.T) {
	dir := t.TempDir()
	for i, size := range []int64{maxRead, maxRead + 1, 1 << 40} {
		file := filepath.Join(dir, "data")
		f, err := os.Create(file)
		mustDo(t, err, f.Truncate(size), f.Close())
		info, err := os.Stat(file)
		mustDo(t, err)
		r := &reader{seed: maphash.MakeSeed(), left: maxReadAtOnce}
		if got, want := r.sum(file, stampOf(info)) != 0, i == 0; got != want {
			t.Errorf("a file of %d bytes was read: %v, want %v", size, got, want)
		}
		if i > 0 && r.left != maxReadAtOnce {
			t.Errorf("%d bytes were read of a file of %d", maxReadAtOnce-r.left, size)
		}
	}
	small := filepath.Join(dir, "small")
	mustDo(t, os.WriteFile(small, []byte("four"), 0o600))
	info, err := os.Stat(small)
	mustDo(t, err)
	if r := (&reader{seed: maphash.MakeSeed(), left: 3}); r.sum(small, stampOf(info)) != 0 {
		t.Error("a file was read that is larger than what may be read at once")
	}
}

// H3: what comes between the tick that sees a burst and its end belongs to what was
// signalled: that it goes again before the next tick is a change.
func TestPollingMissesNothingBetweenItsLooks(t *testing.T) {
	dir := t.TempDir()
	w := New(dir, Options{Poll: true})
	w.begin()
	w.settle(t.Context())
	save := func(name string) string {
		path := filepath.Join(dir, name)
		mustDo(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	save("first")
	if !w.stirred(t.Context()) {
		t.Fatal("a new file is not seen")
	}
	between := save("between")
	if w.settle(t.Context()); w.found != between {
		t.Fatalf("the burst comes to %q, want %q", w.found, between)
	}
	if w.stirred(t.Context()) {
		t.Error("what was compared is seen as a change")
	}
	mustDo(t, os.Remove(between))
	if !w.stirred(t.Context()) {
		t.Error("what went before the next tick is missed for ever")
	}
}
