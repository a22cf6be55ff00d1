package files

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/manifest"
)

// SPEC S2: to make a Watcher costs nothing in proportion to the files of a capsule, since
// all other tools wait for it: they are looked at when the capsule starts.
func TestFilesAreLookedAtWhenTheCapsuleStarts(t *testing.T) {
	const files = 1000
	dir := t.TempDir()
	for i := range files {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool := manifest.Tool{Name: "a-capsule", Dir: dir}
	tool.Runtime.HotLoad.Watch = []string{"./"}
	hub, log := watch.NewHub(), slog.New(slog.DiscardHandler)
	var w *Watcher
	if cost := testing.AllocsPerRun(1, func() { w = New(tool, hub, log) }); cost > files/2 {
		t.Errorf("to make one for %d files allocates %g times", files, cost)
	}
	if cost := testing.AllocsPerRun(1, func() { w.Look(t.Context()) }); cost < files {
		t.Errorf("a look at %d files allocates %g times: none was looked at", files, cost)
	}
}
