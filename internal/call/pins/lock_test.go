package pins_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/call/pins"
	"github.com/orla-project/orla/manifest"
)

// SPEC N4: a lock that another process holds stays where it is: with another file in its place, two processes would write.
func TestN4ALockThatIsHeldStays(t *testing.T) {
	w := newWorld(t, manifest.PinHold)
	w.list(texts{"a": "1"})
	old := time.Now().AddDate(0, 0, -91)
	path := w.file()
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	locks, err := filepath.Glob(filepath.Join(w.dir, "*.lock"))
	if err != nil || len(locks) != 1 {
		t.Fatalf("%q, %v", locks, err)
	}
	held, err := os.OpenFile(locks[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	kept := func() bool {
		pins.NewStore(w.dir, slog.New(slog.DiscardHandler)).Prune(nil)
		_, file := os.Lstat(path)
		_, lock := os.Lstat(locks[0])
		if (file == nil) != (lock == nil) {
			t.Errorf("the file: %v; its lock: %v", file, lock)
		}
		return lock == nil
	}
	if !kept() {
		t.Error("it is removed while it is held")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if kept() {
		t.Error("it stays when nobody holds it")
	}
}
