package declared

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// SPEC R6: a lock of npm of a package from elsewhere names versions of a registry with digests, and nothing else.
func TestR6LocksOfNPM(t *testing.T) {
	const hash = `"integrity": "sha512-AAAA=="`
	lock := func(place, entry string) string {
		return `{"name": "t", "lockfileVersion": 3, "packages": {"": {"dependencies": {"evil": "file:/x"}}, "` + place + `": {` + entry + `}}, "dependencies": {"x": {"version": "file:/x"}}}`
	}
	project := object{"name": json.RawMessage(`"t"`), "dependencies": json.RawMessage(`{"x": "^1.0.0"}`)}
	for _, entry := range []string{
		`"version": "1.0.0", ` + hash,
		`"version": "1.0.0-rc.1", "resolved": "https://elsewhere.example.com/x.tgz", "hasInstallScript": true, ` + hash,
		`"name": "@a/b", "version": "1.0.0", "dependencies": {"y": ">=1.0.0 <2 || ^3", "z": "npm:@a/b@~2.1", "l": "latest", "s": "*", "h": "1.0 - 2.x"}, ` + hash,
	} {
		made, err := lockOfNPM([]byte(lock("node_modules/@a/x/node_modules/y", entry)), project)
		text, _ := json.Marshal(made)
		if err != nil || !strings.Contains(string(text), `"version":"1.0.0`) || strings.Contains(string(text), "elsewhere") || strings.Contains(string(text), "file:") {
			t.Errorf("%s: %v: %s", entry, err, text)
		}
	}
	for _, entry := range []string{
		`"version": "1.0.0"`, `"version": "1.0.0", "inBundle": true`, `"version": "file:/x", ` + hash, `"version": "1.0.0", "resolved": "file:/x.tgz", ` + hash, `"version": "1.0.0", "resolved": "git+ssh://x", ` + hash,
		`"resolved": "x", "link": true`, `"version": "1.0.0", "hasShrinkwrap": true, ` + hash, `"version": "../x", ` + hash, `"version": "1.0.0", "integrity": "x"`,
		`"version": "1.0.0", "dependencies": {"y": "file:../x"}, ` + hash, `"version": "1.0.0", "peerDependencies": {"y": "git+https://x"}, ` + hash, `"version": "1.0.0", "name": "../x", ` + hash,
		`"version": "1.0.0", "dependencies": {"../y": "1"}, ` + hash, `"version": "1.0.0", "optionalDependencies": {"y": "user/repository"}, ` + hash, `"version": 1, ` + hash,
	} {
		if _, err := lockOfNPM([]byte(lock("node_modules/x", entry)), project); err == nil {
			t.Errorf("%s is installed", entry)
		}
	}
	for _, place := range []string{"x", "../x", "node_modules/..", "node_modules/../x", "/x", "node_modules/x/y", "node_modules/x/node_modules/../../y", "node_modules/.bin"} {
		if _, err := lockOfNPM([]byte(lock(place, `"version": "1.0.0", `+hash)), project); err == nil {
			t.Errorf("a package at %s is installed", place)
		}
	}
	if _, err := lockOfNPM([]byte(`{"lockfileVersion": 1, "dependencies": {}}`), project); err == nil {
		t.Error("a lock of npm 6 is read")
	}
	for text, want := range map[string]bool{
		"^1.2.3": true, "": true, "1": true, "x": true, ">= 1": true, "next": true, "npm:x@1": true,
		".": false, "..": false, "./x": false, "~/x": false, "/x": false, "x.tgz": false, "1.tgz": false, "file:x": false, "link:x": false, "a/b": false, "workspace:*": false, "npm:x@file:y": false, "npm:../x@1": false, "github:a/b": false, "http://x": false, `..\x`: false, "$x": false,
	} {
		if got := isRange(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// SPEC R6: the same for a lock of pnpm.
func TestR6LocksOfPNPM(t *testing.T) {
	const good = `lockfileVersion: '9.0'
settings: {autoInstallPeers: true, excludeLinksFromLockfile: false}
importers:
  .:
    dependencies:
      x: {specifier: ^1.0.0, version: 1.0.0(y@2.0.0)}
      z: {specifier: 'npm:@a/z@1', version: '@a/z@1.0.0'}
packages:
  x@1.0.0: {resolution: {integrity: sha512-AAAA==}, engines: {node: '>=10'}, peerDependencies: {y: '*'}}
  '@a/z@1.0.0': {resolution: {integrity: sha512-AAAA==}}
  y@2.0.0: {resolution: {integrity: sha512-AAAA==}, hasBin: true}
snapshots:
  x@1.0.0(y@2.0.0): {dependencies: {y: 2.0.0}}
  '@a/z@1.0.0': {}
  y@2.0.0: {}
`
	if made, err := lockOfPNPM([]byte(good), nil); err != nil || len(made) != 5 {
		t.Errorf("%v, %v", made, err)
	}
	for _, change := range [][2]string{
		{"{integrity: sha512-AAAA==}", "{directory: ../x, type: directory}"},
		{"{integrity: sha512-AAAA==}", "{integrity: sha512-AAAA==, tarball: 'file:/x.tgz'}"},
		{"{integrity: sha512-AAAA==}", "{tarball: 'https://x/y.tgz'}"},
		{"{integrity: sha512-AAAA==}", "{commit: abc, repo: 'https://x', type: git}"},
		{"version: 1.0.0(y@2.0.0)", "version: link:../x"},
		{"version: 1.0.0(y@2.0.0)", "version: file:../x"},
		{"specifier: ^1.0.0", "specifier: file:../x"},
		{"{dependencies: {y: 2.0.0}}", "{dependencies: {y: 'link:../y'}}"},
		{"{dependencies: {y: 2.0.0}}", "{optionalDependencies: {../y: 2.0.0}}"},
		{"  .:\n", "  ../x:\n"},
		{"  x@1.0.0: {", "  x@file:../x: {"},
		{"  y@2.0.0: {}", "  y@https://x/y.tgz: {}"},
		{"  y@2.0.0: {}", "  y@2.0.0: {patched: true}"},
		{"'9.0'", "'6.0'"},
		{"settings: {", "overrides: {y: 'file:x'}\nsettings: {"},
		{"settings: {", "patchedDependencies: {}\nsettings: {"},
		{"autoInstallPeers: true", "autoInstallPeers: [x]"},
		{"lockfileVersion", "---\nlockfileVersion: '9.0'\n---\nlockfileVersion"},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if text == good {
			t.Fatalf("%q is not there", change[0])
		}
		if _, err := lockOfPNPM([]byte(text), nil); err == nil {
			t.Errorf("with %q it is installed", change[1])
		}
	}
}

// SPEC R4: pnpm says nothing of deprecated versions when it installs, so the lock is read, also one that was made careful.
func TestR4DeprecatedVersionsInLocksOfPNPM(t *testing.T) {
	const lock = "lockfileVersion: '9.0'\nimporters:\n  .:\n    dependencies:\n      '@a/acme': {specifier: 2.0.0, version: 2.0.0}\npackages:\n" +
		"  '@a/acme@2.0.0':\n    resolution: {integrity: sha512-AAAA}\n    deprecated: it eats data\n  below@1.0.0:\n    resolution: {integrity: sha512-AAAA}\nsnapshots:\n  '@a/acme@2.0.0': {}\n  below@1.0.0: {}\n"
	file := filepath.Join(t.TempDir(), "pnpm-lock.yaml")
	careful, err := lockOfPNPM([]byte(lock), nil)
	if err != nil {
		t.Fatal(err)
	}
	made, err := json.Marshal(careful)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{lock, string(made)} {
		put(t, file, text)
		if got := fmt.Sprint(DeprecatedInPNPM(file)); got != "[@a/acme 2.0.0 was withdrawn by its publisher: it eats data]" {
			t.Errorf("%s: %s", text, got)
		}
	}
	put(t, file, "{")
	if got := DeprecatedInPNPM(file); got != nil {
		t.Errorf("of a broken lock: %v", got)
	}
}
