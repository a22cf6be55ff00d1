package envfiles

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// SPEC R6 and M4: files, folders and links are counted as well as bytes, and those of the installer's home too.
func TestR6SizesOfFolders(t *testing.T) {
	part, scratch := t.TempDir(), t.TempDir()
	put := func(dir, name string, size int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := Bound{Bytes: 10, Files: 4, Part: part, Scratch: scratch, Log: slog.New(slog.DiscardHandler)}
	put(part, "a", 10)
	put(scratch, "a", 10)
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	put(scratch, "b", 1)
	if b.Check() == nil {
		t.Error("bytes of the home are not counted")
	}
	b.Scratch = ""
	for _, name := range []string{"b", "c"} { // with the folder itself there are 4
		put(part, name, 0)
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	if err := os.Symlink("a", filepath.Join(part, "d")); err != nil {
		t.Fatal(err)
	}
	if b.Check() == nil {
		t.Error("files are not counted")
	}
	_, err := b.Run(t.Context(), func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, context.Cause(ctx) })
	if err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("a run with too many files ends with %v", err)
	}
}
