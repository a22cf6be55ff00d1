package manifest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/manifest"
)

// write makes a file, and the folders above it.
func write(t *testing.T, dir, name, text string, mode os.FileMode) {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func link(t *testing.T, target, file string) {
	t.Helper()
	if err := os.Symlink(target, file); err != nil {
		t.Fatal(err)
	}
}

// pack makes a package with the manifest and an entrypoint called run.sh.
func pack(t *testing.T, toolYAML string) string {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, "tool.yaml", toolYAML, 0o644)
	write(t, dir, "run.sh", "#!/bin/sh\n", 0o644)
	return dir
}

// texts gives the problems as people see them.
func texts(r manifest.Result) []string {
	var list []string
	for _, p := range r.Problems {
		list = append(list, string(p.Severity)+" "+p.Path+": "+p.Err.Error())
	}
	return list
}

// names gives the names of the tools.
func names(r manifest.Result) []string {
	var list []string
	for _, tool := range r.Tools {
		list = append(list, tool.Name)
	}
	return list
}
