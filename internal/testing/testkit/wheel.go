package testkit

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Wheel writes a package of Python into a folder, from which an installer can take it without a network:
// pip with PIP_FIND_LINKS and PIP_NO_INDEX, uv with UV_FIND_LINKS and UV_OFFLINE. code is its only module, which
// must have a function main. requires are its dependencies.
func Wheel(t testing.TB, dir, name, version, code string, requires ...string) {
	t.Helper()
	info := fmt.Sprintf("%s-%s.dist-info/", name, version)
	var meta, record strings.Builder
	fmt.Fprintf(&meta, "Metadata-Version: 2.1\nName: %s\nVersion: %s\n", name, version)
	for _, r := range requires {
		fmt.Fprintf(&meta, "Requires-Dist: %s\n", r)
	}
	files := [][2]string{
		{name + "/__init__.py", code},
		{info + "METADATA", meta.String()},
		{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: orla\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{info + "entry_points.txt", fmt.Sprintf("[console_scripts]\n%s-run = %s:main\n", name, name)},
	}
	for _, f := range files {
		record.WriteString(f[0] + ",,\n")
	}
	files = append(files, [2]string{info + "RECORD", record.String() + info + "RECORD,,\n"})
	out, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", name, version)))
	if err != nil {
		t.Fatal(err)
	}
	archive := zip.NewWriter(out)
	for _, f := range files {
		w, err := archive.Create(f[0])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(f[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
