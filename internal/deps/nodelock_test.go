package deps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SPEC R6: what is refused is refused before npm or pnpm runs.
func TestR6NodeProjectsAreRefused(t *testing.T) {
	const lock = `{"lockfileVersion": 3, "packages": {}}`
	dir, log := fakeUV(t)
	for _, program := range []string{"npm", "pnpm"} {
		put(t, filepath.Join(dir, program), "#!/bin/sh\ntouch '"+log+"'\n")
	}
	for project, word := range map[string]string{
		`{"dependencies": {"x": "file:/etc/x.tgz"}}`: "x", `{"workspaces": ["../*"]}`: "workspaces", `{"overrides": {"x": "file:y"}}`: "overrides", `{"pnpm": {}}`: "pnpm",
		"\ufeff{}": "U+FEFF",
	} {
		from := source(t, Node, "", map[string]string{"package.json": project, "package-lock.json": lock})
		from.NoScripts = true
		s := store(t, t.TempDir(), "PATH="+dir+":/usr/bin:/bin")
		if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err == nil || !strings.Contains(err.Error(), word) || exists(log) {
			t.Errorf("%s: %v; npm has run: %v", project, err, exists(log))
		}
	}
}

// SPEC R6: pnpm is not to fetch another pnpm, and not to link files of its cache, into which anything may have been put.
func TestR6PNPMIsTheOneThatIsThere(t *testing.T) {
	dir, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	put(t, filepath.Join(dir, "pnpm"), "#!/bin/sh\n{ env; cat package.json; ls -A; } >'"+log+"'\n")
	if err := os.Chmod(filepath.Join(dir, "pnpm"), 0o755); err != nil {
		t.Fatal(err)
	}
	from := source(t, Node, "", map[string]string{
		"package.json": `{"name": "t", "packageManager": "pnpm@1.0.0"}`, "pnpm-lock.yaml": "lockfileVersion: '9.0'\n", ".npmrc": "x=1\n", ".pnpmfile.cjs": "x", "pnpm-workspace.yaml": "x: 1\n",
	})
	from.NoScripts = true
	s := store(t, t.TempDir(), "PATH="+dir+":/usr/bin:/bin")
	if _, err := s.Build(t.Context(), detect(t, s, from), quiet); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]bool{
		"npm_config_manage_package_manager_versions=false": true, "npm_config_package_import_method=copy": true, "packageManager": false, ".npmrc": false, ".pnpmfile.cjs": false, "pnpm-workspace.yaml": false,
	} {
		if strings.Contains(string(text), word) != want {
			t.Errorf("pnpm sees %s: %v", word, !want)
		}
	}
}
