package environ_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/manifest"
)

func TestC2WhatIsOrlasOwnIsNotPassedOn(t *testing.T) {
	own := []string{
		"PATH=/bin", "EMPTY=", "A=b=c", "NOTIFY=mine",
		"ORLA_PORT=1", "ORLOJ_SECRET_KEY=x", "NOTIFY_SOCKET=@x", "WATCHDOG_USEC=1", "LISTEN_FDS=1", "LISTEN_PID=2",
		"FDSTORE=1", "INVOCATION_ID=x", "JOURNAL_STREAM=1:2", "CREDENTIALS_DIRECTORY=/c", "MAINPID=1", "MANAGERPID=1",
		"PWD=/", "OLDPWD=/", "nonsense",
	}
	before := slices.Clone(own)
	if got, want := environ.Clean(own), []string{"PATH=/bin", "EMPTY=", "A=b=c", "NOTIFY=mine"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !slices.Equal(own, before) {
		t.Errorf("what was passed in is now %q", own)
	}
}

func TestC2D3TheManifestsVariablesAreOnTop(t *testing.T) {
	clean := []string{"PATH=/bin", "HOME=/h", "LANG=C", "TMPDIR=/t", "WANTED=yes", "OTHER=no", "MINE=inherited"}
	tool := manifest.Tool{
		Name:        "a",
		Dir:         "/tools",
		Interpreter: manifest.Interpreter{Env: []string{"MINE=shebang", "LINE=1"}},
		Run:         manifest.Run{Env: map[string]string{"MINE": "manifest", "NEW": "a=b"}},
	}
	narrow := tool
	narrow.Run.InheritEnv = manifest.EnvPolicy{Narrow: true, Names: []string{"WANTED"}}
	over := tool
	over.Run.Env = map[string]string{"ORLA_TOOL": "b", "PWD": "/x", "LINE": ""}
	for name, c := range map[string]struct {
		tool manifest.Tool
		want []string
	}{
		"all is inherited": {tool, []string{
			"PATH=/bin", "HOME=/h", "LANG=C", "TMPDIR=/t", "WANTED=yes", "OTHER=no", "PWD=/tools", "ORLA_TOOL=a", "LINE=1", "MINE=manifest", "NEW=a=b",
		}},
		"four and the names": {narrow, []string{
			"PATH=/bin", "HOME=/h", "LANG=C", "TMPDIR=/t", "WANTED=yes", "PWD=/tools", "ORLA_TOOL=a", "LINE=1", "MINE=manifest", "NEW=a=b",
		}},
		"the manifest wins": {over, []string{
			"PATH=/bin", "HOME=/h", "LANG=C", "TMPDIR=/t", "WANTED=yes", "OTHER=no", "MINE=shebang", "LINE=", "ORLA_TOOL=b", "PWD=/x",
		}},
	} {
		before := slices.Clone(clean)
		if got := environ.Of(c.tool, clean); !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got  %q\n want %q", name, got, c.want)
		}
		if !slices.Equal(clean, before) {
			t.Fatalf("%s: what may be inherited is now %q", name, clean)
		}
	}
}

// SPEC-TOOLS 7: a program of an isolated process is looked for where that looks,
// and not in Orla's own PATH.
func TestT7ProgramsAreFoundWhereTheProcessLooks(t *testing.T) {
	own, place := t.TempDir(), t.TempDir()
	t.Setenv("PATH", own)
	for _, dir := range []string{own, place} {
		if err := os.WriteFile(filepath.Join(dir, "python9"), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(place, "data"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	env := []string{"PATH=.::/absent:" + place}
	for program, want := range map[string]string{
		"python9": filepath.Join(place, "python9"), "data": "", "absent": "", "./x/y": "", "/bin/absent": "", "/bin/sh": "/bin/sh",
	} {
		if got := environ.Find(program, env); got != want {
			t.Errorf("%s: got %q, want %q", program, got, want)
		}
	}
	if got := environ.Find("sh", nil); got == "" {
		t.Error("a shell is nowhere in the usual PATH")
	}
	tool := manifest.Tool{Interpreter: manifest.Interpreter{Name: "python9"}}
	if got, err := environ.Interpreter(tool, env); got != filepath.Join(own, "python9") || err != nil {
		t.Errorf("without isolation: %s, %v", got, err)
	}
	tool.Isolation.Mode = manifest.IsolationSandboxed
	if got, err := environ.Interpreter(tool, env); got != filepath.Join(place, "python9") || err != nil {
		t.Errorf("isolated: %s, %v", got, err)
	}
	tool.Interpreter.Path = "/absent/python9"
	if got, err := environ.Interpreter(tool, env); got != filepath.Join(place, "python9") || err != nil {
		t.Errorf("isolated, by a path: %s, %v", got, err)
	}
	if _, err := environ.Interpreter(tool, []string{"PATH=/absent"}); err == nil {
		t.Error("it is found nowhere")
	}
}

// SPEC R2: nothing is installed for a tool whose processes have the programs of an image.
func TestR2ImagesHaveTheirOwnPackages(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for backend, want := range map[manifest.Backend]bool{manifest.BackendNative: true, manifest.BackendContainer: false, manifest.BackendKubernetes: false} {
		tool := manifest.Tool{Name: "a", Kind: manifest.Capsule, Path: filepath.Join(dir, "main"), Dir: dir, Interpreter: manifest.Interpreter{Name: "python3"}}
		tool.Isolation.Mode, tool.Isolation.Terms.Backend = manifest.IsolationSandboxed, backend
		tool.Run.Env = map[string]string{"PATH": bin}
		if _, ok := environ.Dependencies(tool, nil); ok != want {
			t.Errorf("%s: %v", backend, ok)
		}
	}
}

// SPEC R6: the interpreter that installs what a package from elsewhere needs is the machine's. The package has no say in it.
func TestR6ThePackageDoesNotChooseItsInterpreter(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"python3", "python-evil", "node"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tool := manifest.Tool{Name: "a", Kind: manifest.Capsule, Path: filepath.Join(dir, "main"), Dir: dir, Interpreter: manifest.Interpreter{Name: "python3"}}
	tool.Isolation.Mode, tool.Isolation.Terms.Backend = manifest.IsolationSandboxed, manifest.BackendNative
	tool.Run.Env = map[string]string{"PATH": bin + ":/usr/bin:/bin"}
	if source, ok := environ.Dependencies(tool, nil); !ok || source.Interpreter != filepath.Join(bin, "python3") {
		t.Errorf("of a tool of one's own: %v, %v: this test proves nothing", source, ok)
	}
	tool.Run.Setup.NoScripts, tool.Run.Setup.Package = true, "a h1:x"
	usual := environ.Find("python3", nil)
	source, ok := environ.Dependencies(tool, []string{"PATH=" + bin})
	if source.Interpreter != usual || ok != (usual != "") || source.Package != "a h1:x" {
		t.Errorf("got %+v, %v, want %s", source, ok, usual)
	}
	for _, isolated := range []manifest.IsolationMode{manifest.IsolationSandboxed, ""} {
		tool.Isolation.Mode = isolated
		for _, name := range []string{"python-evil", "python/../../sh", "python3-config", "pythonx"} {
			tool.Interpreter.Name = name
			if source, ok := environ.Dependencies(tool, []string{"PATH=" + bin}); ok {
				t.Errorf("%s is %s", name, source.Interpreter)
			}
		}
	}
	if usual == "" {
		return
	}
	tool.Interpreter.Name, tool.Isolation.Grants.Writes = "python3", []string{filepath.Dir(usual)}
	if source, ok := environ.Dependencies(tool, nil); ok {
		t.Errorf("the package may change %s, which installs for it", source.Interpreter)
	}
}
