package discover

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/manifest"
)

// manyPackages writes n packages.
func manyPackages(t testing.TB, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		name := fmt.Sprintf("p%03d", i)
		if err := os.MkdirAll(filepath.Join(dir, name, "lib", "more"), 0o755); err != nil {
			t.Fatal(err)
		}
		writeTool(t, dir, name+"/tool.yaml", fmt.Sprintf("name: %s\nversion: 1.0.0\ndescription: number %d\nentrypoint: lib/run\n", name, i))
		writeTool(t, dir, name+"/lib/run", "#!/bin/sh\n")
	}
	return dir
}

// SPEC L3, S1: a reload reads only the packages that have changed, and finds what a search without memory does.
func TestL3AReloadReadsThePackagesThatHaveChanged(t *testing.T) {
	for _, n := range []int{fewAhead / 2, 2 * fewAhead} { // one after the other, and several at once
		t.Run(fmt.Sprint(n), func(t *testing.T) { changePackages(t, n) })
	}
}

func changePackages(t *testing.T, n int) {
	dir := manyPackages(t, n)
	read, after := 0, time.Hour
	seen := &Seen{Now: func() time.Time {
		read++ // a package, or another file that may hold documents
		return time.Now().Add(after)
	}}
	search := func(reads int) manifest.Result {
		t.Helper()
		read = 0
		r := Tools(Options{ToolsDir: dir, Seen: seen})
		if read != reads {
			t.Errorf("read %d packages, want %d", read, reads)
		}
		if fresh := Tools(Options{ToolsDir: dir}); !reflect.DeepEqual(r, fresh) {
			t.Errorf("found %+v\nwithout memory %+v", r, fresh)
		}
		return r
	}
	search(n)
	search(0)
	for what, change := range map[string]func(in string) error{
		"its description": func(in string) error {
			return os.WriteFile(filepath.Join(in, "tool.yaml"), []byte("name: p003\nversion: 2.0.0\ndescription: x\nentrypoint: lib/run\n"), 0o600)
		},
		"its interpreter": func(in string) error {
			return os.WriteFile(filepath.Join(in, "lib/run"), []byte("#!/bin/cat\n"), 0o600)
		},
		"another file":     func(in string) error { return os.WriteFile(filepath.Join(in, "more"), nil, 0o600) },
		"a file far below": func(in string) error { return os.WriteFile(filepath.Join(in, "lib/more/x"), nil, 0o600) },
		"another entrypoint of its name": func(in string) error {
			if err := os.WriteFile(filepath.Join(in, "new"), []byte("#!/bin/cat\n"), 0o600); err != nil {
				return err
			}
			return os.Rename(filepath.Join(in, "new"), filepath.Join(in, "lib/run"))
		},
	} {
		if err := change(filepath.Join(dir, "p003")); err != nil {
			t.Fatal(what, err)
		}
		search(1)
		search(0)
	}
	denies := func(r manifest.Result) bool {
		return slices.ContainsFunc(r.Problems, func(p manifest.Problem) bool { return p.Denies })
	}
	for _, at := range []string{"rule.yaml", "lib/more/rule.yaml"} { // which is read, and the package is not
		writeTool(t, dir, "p003/"+at, "kind: ToolPermission\n")
		if !denies(search(1)) {
			t.Errorf("%s is not found", at)
		}
		if err := os.Remove(filepath.Join(dir, "p003", at)); err != nil {
			t.Fatal(err)
		}
		search(1)
	}
	if err := os.Symlink("/nowhere", filepath.Join(dir, "p003/lib/link.yaml")); err != nil {
		t.Fatal(err)
	}
	if !denies(search(0)) {
		t.Error("a link to nowhere does not deny")
	}
	if err := os.RemoveAll(filepath.Join(dir, "p003/lib/link.yaml")); err != nil {
		t.Fatal(err)
	}
	writeTool(t, dir, "p004/tool.yaml", "name: p004\nversion: 2.0.0\ndescription: x\n")
	search(3)
	search(1) // the entrypoint is at fault, so that it is read again
	fault := "name: p007\nversion: 2.0.0\ndescription: x\nentrypoint: lib/run\nmisspelt: 1\n"
	writeTool(t, dir, "p007/tool.yaml", fault)
	search(3)
	search(1) // and the other one is not
	writeTool(t, dir, "p007/tool.yaml", strings.ReplaceAll(fault, "misspelt: 1", "author: x"))
	search(2)
	search(1)
	if err := os.Rename(filepath.Join(dir, "p005"), filepath.Join(dir, "p905")); err != nil {
		t.Fatal(err)
	}
	search(2)
	if n, want := len(seen.known().packages), n-1; n != want {
		t.Errorf("%d packages are remembered, want %d", n, want)
	}
	after = -time.Hour // as if each file had just changed
	writeTool(t, dir, "p006/lib/run", "#!/bin/cat\n")
	search(2)
	search(2)
}

// SPEC S1, M7: nothing is said of a package that was only read once, since its folder may have been replaced meanwhile.
func TestM7AFolderIsListedAgainBeforeItHidesNothing(t *testing.T) {
	dir := manyPackages(t, 3)
	at := filepath.Join(dir, "p001")
	seen := &Seen{Now: func() time.Time { return time.Now().Add(time.Hour) }}
	hides := func(want ...bool) {
		t.Helper()
		for i, want := range want {
			if Tools(Options{ToolsDir: dir, Seen: seen}); seen.HidesNothing(at) != want {
				t.Errorf("search %d: %v, want %v", i, !want, want)
			}
		}
	}
	hides(false, true, true)
	writeTool(t, dir, "p001/.hidden", "")
	hides(false, false)
	if err := os.Remove(filepath.Join(at, ".hidden")); err != nil {
		t.Fatal(err)
	}
	hides(false, true)
	if err := os.RemoveAll(at); err != nil {
		t.Fatal(err)
	}
	hides(false)
	if (*Seen)(nil).HidesNothing(at) || new(Seen).HidesNothing(at) {
		t.Error("what was not searched hides nothing")
	}
}

// SPEC S1: a tool that has not changed is not copied by each search until it is in the result.
func TestS1AnUnchangedPackageIsNotCopied(t *testing.T) {
	dir := manyPackages(t, 1)
	seen := &Seen{Now: func() time.Time { return time.Now().Add(time.Hour) }}
	Tools(Options{ToolsDir: dir, Seen: seen})
	at := filepath.Join(dir, "p000")
	var reads [2]reading
	for i := range reads {
		w := newWalker()
		w.seen, w.known, w.keeps = seen, seen.known(), sights{map[string]seenTool{}, map[string]*seenPackage{}}
		w.readFolder(at, at, &reads[i])
	}
	if a, b := reads[0].of, reads[1].of; a == nil || b == nil || a.tool != b.tool {
		t.Error("the tool was copied")
	}
}

// SPEC A5: where the interpreter of a package is can change while its files do not.
func TestA5AnInterpreterOfAPackageIsLookedUpAtEachSearch(t *testing.T) {
	dir, bin := manyPackages(t, fewAhead), t.TempDir()
	t.Setenv("PATH", bin)
	writeTool(t, dir, "p001/lib/run", "#!/usr/bin/env interpreter\n")
	writeTool(t, dir, "p002/lib/run", "#!/usr/bin/env python3\n")
	seen := &Seen{Now: func() time.Time { return time.Now().Add(time.Hour) }}
	search := func() (served []string) {
		for _, one := range Tools(Options{ToolsDir: dir, Seen: seen}).Tools {
			if one.Interpreter.Name != "sh" {
				served = append(served, one.Name+" "+strings.TrimPrefix(one.Interpreter.Path, dir))
			}
		}
		return served
	}
	want := func(names ...string) {
		t.Helper()
		if got := search(); !slices.Equal(got, names) {
			t.Errorf("%q are served, want %q", got, names)
		}
	}
	want()
	writeTool(t, bin, "interpreter", "#!/bin/sh\n")
	writeTool(t, bin, "python3", "#!/bin/sh\n")
	want("p001 ", "p002 ")
	want("p001 ", "p002 ")
	if err := os.MkdirAll(filepath.Join(dir, "p002/lib/.venv/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	want("p001 ", "p002 ")
	want("p001 ", "p002 ")
	writeTool(t, dir, "p002/lib/.venv/bin/python3", "#!/bin/sh\n")
	want("p001 ", "p002 /p002/lib/.venv/bin/python3")
	if err := os.Remove(filepath.Join(bin, "interpreter")); err != nil {
		t.Fatal(err)
	}
	want("p002 /p002/lib/.venv/bin/python3")
}

func BenchmarkSearchPackages(b *testing.B) {
	dir := manyPackages(b, 1000)
	for name, seen := range map[string]*Seen{"first": nil, "again": {Now: func() time.Time { return time.Now().Add(time.Hour) }}} {
		b.Run(name, func(b *testing.B) {
			Tools(Options{ToolsDir: dir, Seen: seen})
			for b.Loop() {
				Tools(Options{ToolsDir: dir, Seen: seen})
			}
		})
	}
}
