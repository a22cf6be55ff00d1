package deps

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

// nativeSource writes a source archive of a package whose build starts a compiler.
func nativeSource(t *testing.T, dir, compiler string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "native-1.0.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	zipped := gzip.NewWriter(f)
	w := tar.NewWriter(zipped)
	for name, text := range map[string]string{
		"PKG-INFO":       "Metadata-Version: 2.1\nName: native\nVersion: 1.0\n",
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n[project]\nname = \"native\"\nversion = \"1.0\"\n",
		"backend.py":     "import subprocess\ndef build_wheel(*args, **more):\n    subprocess.check_call(['" + compiler + "', '-c', 'native.c'])\n",
	} {
		if err := w.WriteHeader(&tar.Header{Name: "native-1.0/" + name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), zipped.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// SPEC R4: where a package has to be built and there is no compiler, and where there is no network, the last lines of the
// installer say it, and nothing is left.
func TestR4WhatAMachineLacks(t *testing.T) {
	needs.Programs(t, "uv")
	base, packages := python(t), offline(t)
	from := source(t, Python, "import native\n", map[string]string{"requirements.txt": "native\n"})
	from.Interpreter = base
	nativeSource(t, variable(packages, "PIP_FIND_LINKS"), "compiler-of-tests")
	unreachable := []string{"UV_DEFAULT_INDEX=http://127.0.0.1:1/simple", "UV_HTTP_RETRIES=0", "UV_CACHE_DIR=" + t.TempDir()}
	for want, environ := range map[string][]string{
		"compiler-of-tests":   packages,
		"http://127.0.0.1:1/": unreachable,
	} {
		dir := t.TempDir()
		s := store(t, dir, environ...)
		_, err := s.Build(t.Context(), detect(t, s, from), quiet)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it does not say %s: %v", want, err)
		}
		if got := left(t, dir); len(got) != 0 {
			t.Errorf("it leaves %q", got)
		}
	}
}
