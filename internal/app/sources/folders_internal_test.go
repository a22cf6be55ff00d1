package sources

import (
	"testing"

	"github.com/orla-project/orla/internal/file/watch"
)

// SPEC R2, E3: of a virtual environment only its Python counts, and what is ignored elsewhere stays so.
func TestR2OnlyThePythonOfAnEnvironmentCounts(t *testing.T) {
	for rel, counts := range map[string]bool{
		".venv/": true, "venv/": true, "pkg/.venv/": true, ".venv/bin/": true, "a/b/venv/bin/": true,
		".venv/bin/python": true, "pkg/.venv/bin/python3.13": true, "a/venv/bin/python3": true, ".venv": true,
		".venv/pyvenv.cfg": false, ".venv/lib/": false, ".venv/bin/pip": false, ".venv/bin/activate": false, ".venv/bin/python/": false,
		".venv/bin": false, "pkg/.venv/lib64": false, "bin/pip": true, "pkg/bin/": true, "node_modules/": false, "x.pyc": false, "src/main.py": true,
	} {
		name, isDir := rel, false
		if rel[len(rel)-1] == '/' {
			name, isDir = rel[:len(rel)-1], true
		}
		if got := !ignored(name, isDir); got != counts {
			t.Errorf("%s counts: %v, want %v", rel, got, counts)
		}
	}
	if !watch.Ignored(".venv", true) {
		t.Error("the files of a capsule have those of its environment")
	}
}
