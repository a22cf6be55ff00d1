package crd_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/cluster/crd"
)

// SPEC P2: the committed definitions are those that the schemas of files make. UPDATE=1 writes them.
func TestP2DefinitionsAreTheSchemasOfFiles(t *testing.T) {
	const dir = "../../../deploy/helm/orla/crds"
	files := crd.Files()
	for name, want := range files {
		path := filepath.Join(dir, name)
		if os.Getenv("UPDATE") != "" {
			if err := os.WriteFile(path, want, 0o644); err != nil { //nolint:gosec // everybody may read it
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s is not what orla schema crds prints; UPDATE=1 go test ./internal/cluster/crd writes it", path)
		}
	}
	there, err := filepath.Glob(dir + "/*.yaml")
	if err != nil || len(there) != len(files) {
		t.Errorf("%v: %v; want %v", there, err, slices.Sorted(maps.Keys(files)))
	}
	if got := bytes.Count(crd.YAML(), []byte("\n---\n")); got != len(files)-1 {
		t.Errorf("%d marks between documents", got)
	}
}
