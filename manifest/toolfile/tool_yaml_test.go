package toolfile_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/testing/manifesttest"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
)

var update = flag.Bool("update", false, "write the golden files again")

func TestB1B2GoodManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/good/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			dir := t.TempDir()
			manifesttest.Write(t, dir, "tool.yaml", string(manifesttest.Read(t, file)), 0o644)
			manifesttest.Write(t, dir, "run.sh", "#!/bin/sh\n", 0o644)
			for _, watched := range []string{"src/a", "lib/a"} {
				manifesttest.Write(t, dir, watched, "", 0o644)
			}
			r := discover.Validate(dir)
			if len(r.Problems) > 0 || len(r.Tools) != 1 {
				t.Fatalf("got %d tools and the problems %v", len(r.Tools), manifesttest.Texts(r))
			}
			got, err := json.MarshalIndent(r.Tools[0], "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			real, err := filepath.EvalSymlinks(dir)
			if err != nil {
				t.Fatal(err)
			}
			got = bytes.ReplaceAll(got, []byte(real), []byte("PACKAGE"))
			got = append(bytes.ReplaceAll(got, []byte(dir), []byte("PACKAGE")), '\n')
			golden := strings.TrimSuffix(file, ".yaml") + ".json"
			if *update {
				manifesttest.Write(t, ".", golden, string(got), 0o644)
			}
			if want := manifesttest.Read(t, golden); !bytes.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestB5BadManifests(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			t.Chdir(dir)
			want := map[string]string{}
			for _, f := range archive.Files {
				if f.Name == "faults" || f.Name == "warnings" {
					want[f.Name] = strings.TrimSpace(string(f.Data))
					continue
				}
				manifesttest.Write(t, dir, f.Name, string(f.Data), 0o644)
			}
			r := discover.Validate(".")
			last := len(r.Problems) - 1
			if len(r.Tools) != 0 || last < 0 || r.Problems[last].Severity != manifest.Fault {
				t.Fatalf("got %d tools and the problems %v, want one fault", len(r.Tools), manifesttest.Texts(r))
			}
			if got := r.Problems[last].Err.Error(); got != want["faults"] {
				t.Errorf("got\n%s\nwant\n%s", got, want["faults"])
			}
			if _, ok := errors.AsType[yamldoc.Fault](r.Problems[last].Err); !ok {
				t.Errorf("the problem does not unwrap to its faults: %#v", r.Problems[last].Err)
			}
			warnings := manifest.Result{Problems: r.Problems[:last]}
			if got := strings.Join(manifesttest.Texts(warnings), "\n"); got != want["warnings"] {
				t.Errorf("got the warnings\n%s\nwant\n%s", got, want["warnings"])
			}
		})
	}
}

// S2: each file of a package is held against what its manifest watches and ignores.
func TestB2HotLoadIsBounded(t *testing.T) {
	for _, tt := range []struct {
		list, want string
		entries    int
		entry      string
	}{
		{"watch", "", 1000, "a"},
		{"watch", "runtime.hot_load.watch: must have at most 1000 entries, got 1001", 1001, "a"},
		{"ignore", "", 1000, "a"},
		{"ignore", "runtime.hot_load.ignore: must have at most 1000 entries, got 1001", 1001, "a"},
		{"ignore", "", 1, strings.Repeat("a", 255)},
		{"ignore", "runtime.hot_load.ignore[0]: must be at most 255 bytes, got 256", 1, strings.Repeat("a", 256)},
	} {
		dir := manifesttest.Pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: run.sh\nruntime: {mode: capsule, hot_load: {"+
			tt.list+": ["+strings.Repeat(tt.entry+", ", tt.entries-1)+tt.entry+"]}}\n")
		manifesttest.Write(t, dir, "a", "", 0o644)
		r := discover.Validate(dir)
		if got := strings.Join(manifesttest.Texts(r), "\n"); !strings.HasSuffix(got, tt.want) || (len(r.Tools) == 1) != (tt.want == "") {
			t.Errorf("%s of %d: got %d tools and %q, want the fault %q", tt.list, tt.entries, len(r.Tools), got, tt.want)
		}
	}
}

func TestB1SemVerIsWhole(t *testing.T) {
	for version, good := range map[string]bool{
		"1.2.3": true, "0.0.0": true, "1.0.0-rc.1": true, "1.0.0+a.b": true, "1.0.0-x-y+z": true,
		"1": false, "1.2": false, "v1.2.3": false, "01.2.3": false, "1.2.3-": false, "1.2.3-01": false, "1.2.3.4": false, "latest": false, "1-a.b.c": false,
	} {
		dir := manifesttest.Pack(t, "name: a\nversion: "+version+"\ndescription: x\nentrypoint: run.sh\n")
		if got := len(discover.Validate(dir).Tools) == 1; got != good {
			t.Errorf("%s: taken %v, want %v", version, got, good)
		}
	}
}

func TestB1TheEntrypointStaysInsideAfterLinks(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "evil.sh")
	manifesttest.Write(t, filepath.Dir(outside), "evil.sh", "#!/bin/sh\n", 0o755)
	dir := manifesttest.Pack(t, "name: a\nversion: 1.0.0\ndescription: x\nentrypoint: bin/out\n")
	manifesttest.Write(t, dir, "bin/in.sh", "#!/bin/sh\n", 0o755)
	for target, good := range map[string]bool{outside: false, "in.sh": true, "../bin/in.sh": true, "../../x": false} {
		link := filepath.Join(dir, "bin", "out")
		if err := os.RemoveAll(link); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
		r := discover.Validate(dir)
		if got := len(r.Tools) == 1; got != good {
			t.Errorf("link to %s: taken %v, want %v: %v", target, got, good, manifesttest.Texts(r))
		}
	}
}
