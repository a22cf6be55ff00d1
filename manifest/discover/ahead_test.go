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

// many writes n executables that describe themselves.
func many(t testing.TB, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		writeTool(t, dir, fmt.Sprintf("tool%03d", i), fmt.Sprintf("#!/bin/sh\n# /// tool\n# description: number %d\n# mcp: {input_schema: {text: string}}\n# ///\n", i))
	}
	return dir
}

func writeTool(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// SPEC L3, S1: a reload reads only the executables that have changed, and finds what a search without memory does.
func TestL3AReloadReadsTheExecutablesThatHaveChanged(t *testing.T) {
	dir := many(t, 2*fewAhead)
	read, after := 0, time.Hour
	seen := &Seen{Now: func() time.Time {
		read++
		return time.Now().Add(after)
	}}
	search := func(reads int) manifest.Result {
		t.Helper()
		read = 0
		r := Tools(Options{ToolsDir: dir, Seen: seen})
		if read != reads {
			t.Errorf("read %d files, want %d", read, reads)
		}
		if fresh := Tools(Options{ToolsDir: dir}); !reflect.DeepEqual(r, fresh) {
			t.Errorf("found %+v\nwithout memory %+v", r, fresh)
		}
		return r
	}
	search(2 * fewAhead)
	search(0)
	writeTool(t, dir, "tool007", "#!/bin/sh\n# /// tool\n# description: another\n# ///\n")
	if r := search(1); r.Tools[7].Description != "another" {
		t.Errorf("the changed tool is %+v", r.Tools[7])
	}
	search(0)
	for name, text := range map[string]string{"tool008": "#!/bin/sh\n# /// tool\n# descr: misspelt\n# ///\n", "tool009": "no shebang\n", "tool010": "\x00asm"} {
		writeTool(t, dir, name, text)
	}
	search(3)
	search(0) // what is at fault is remembered as well, and what is not a script
	if err := os.Rename(filepath.Join(dir, "tool011"), filepath.Join(dir, "tool012")); err != nil {
		t.Fatal(err)
	}
	search(1) // its name says what it is called
	if n := len(seen.known().tools); n != 2*fewAhead-1 {
		t.Errorf("%d executables are remembered, want those that are there", n)
	}
	writeTool(t, dir, "tool008", "#!/bin/sh\n# /// tool\n# description: spelt\n# ///\n")
	if r := search(1); !slices.ContainsFunc(r.Tools, func(t manifest.Tool) bool { return t.Description == "spelt" }) {
		t.Errorf("a fault was corrected: %v", r.Problems)
	}
	writeTool(t, dir, "tool013.tool.yaml", "description: of the sidecar\n")
	if r := search(2); !slices.ContainsFunc(r.Problems, func(p manifest.Problem) bool {
		return strings.Contains(p.Err.Error(), "is described twice")
	}) {
		t.Errorf("problems: %v", r.Problems)
	}
	after = -time.Hour // as if each file had just changed
	writeTool(t, dir, "tool014", "#!/bin/sh\n")
	search(2)
	search(2)
}

// SPEC A5: where an interpreter is can change while the file that names it does not.
func TestA5AnInterpreterIsLookedUpAtEachSearch(t *testing.T) {
	dir, bin := many(t, fewAhead), t.TempDir()
	t.Setenv("PATH", bin)
	writeTool(t, dir, "other", "#!/usr/bin/env interpreter\n")
	writeTool(t, dir, "snake", "#!/usr/bin/env python3\n")
	seen := &Seen{Now: func() time.Time { return time.Now().Add(time.Hour) }}
	search := func() (names []string, python string) {
		for _, one := range Tools(Options{ToolsDir: dir, Seen: seen}).Tools {
			if !strings.HasPrefix(one.Name, "tool") {
				names = append(names, one.Name)
			}
			if one.Name == "snake" {
				python = one.Interpreter.Path
			}
		}
		return names, python
	}
	if names, _ := search(); len(names) > 0 {
		t.Errorf("%v are served without their interpreters", names)
	}
	writeTool(t, bin, "interpreter", "#!/bin/sh\n")
	if err := os.MkdirAll(filepath.Join(dir, ".venv/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	writeTool(t, dir, ".venv/bin/python3", "#!/bin/sh\n")
	if names, python := search(); !slices.Equal(names, []string{"other", "snake"}) || !strings.HasSuffix(python, ".venv/bin/python3") {
		t.Errorf("%v are served, and Python is %q", names, python)
	}
	if err := os.RemoveAll(filepath.Join(dir, ".venv")); err != nil {
		t.Fatal(err)
	}
	if names, _ := search(); !slices.Equal(names, []string{"other"}) {
		t.Errorf("%v are served", names)
	}
}

// SPEC L3: tools with all kinds of keys are read several at once, each as it is alone. Here the race detector sees what reads them,
// which the tests of manifest/toolfile and manifest/keys do without.
func TestL3AllKindsOfToolsAreReadTogether(t *testing.T) {
	keys := []string{
		"timeout: 5\nmcp: {input_schema: {a: string}}\n", "timeout: soon\nnonsense: 1\n", "mcp: {input_schema: {type: object, required: [a], properties: {a: {enum: [1]}}}}\n",
		"runtime: {isolation_mode: sandboxed, resources: {pids: 5}}\n", "runtime: {isolation_mode: container, image: a, network: b}\n",
		"runtime: {isolation_mode: kubernetes, image: a/b:1}\n", "runtime: {retry: {max_attempts: 2}}\n",
		"runtime: {mode: capsule, pin: hold, hot_load: {debounce_ms: 2001, watch: [run, src]}}\n", "runtime: {mode: capsule, tool_prefix: a, restart: {initial_ms: 1}}\nmcp: {}\n",
	}
	write := func(dir string, n int) {
		t.Helper()
		script := "#!/bin/sh\n# /// tool\n# " + strings.ReplaceAll("description: d\n"+keys[n%len(keys)], "\n", "\n# ") + "///\n"
		name := fmt.Sprintf("p%dx%d", n%len(keys), n/len(keys)) // those of a kind are read at the same time
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		writeTool(t, dir, "e"+name+".sh", script)
		writeTool(t, dir, name+"/run", script)
		writeTool(t, dir, name+"/tool.yaml", fmt.Sprintf("name: %s\nversion: 1.0.0\ndescription: d\nentrypoint: run\n%s", name, keys[n%len(keys)]))
	}
	const times = 8
	together, tools, problems := t.TempDir(), 0, 0
	for n := range times * len(keys) {
		write(together, n)
		if n < len(keys) {
			alone := t.TempDir()
			write(alone, n)
			r := Tools(Options{ToolsDir: alone})
			tools, problems = tools+times*len(r.Tools), problems+times*len(r.Problems)
		}
	}
	r := Tools(Options{ToolsDir: together})
	if len(r.Tools) != tools || len(r.Problems) != problems || tools == 0 || problems == 0 {
		t.Errorf("found %d tools and %d problems, want %d and %d", len(r.Tools), len(r.Problems), tools, problems)
	}
}

func BenchmarkSearch(b *testing.B) {
	dir := many(b, 1000)
	for name, seen := range map[string]*Seen{"first": nil, "again": {Now: func() time.Time { return time.Now().Add(time.Hour) }}} {
		b.Run(name, func(b *testing.B) {
			Tools(Options{ToolsDir: dir, Seen: seen})
			for b.Loop() {
				Tools(Options{ToolsDir: dir, Seen: seen})
			}
		})
	}
}
