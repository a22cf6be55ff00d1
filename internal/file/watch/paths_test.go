package watch_test

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/file/watch"
)

func fifo(t *testing.T, path string) {
	t.Helper()
	must(t, syscall.Mkfifo(path, 0o600))
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=core.fsync", "GIT_CONFIG_VALUE_0=none",
		"GIT_CONFIG_KEY_1=gc.auto", "GIT_CONFIG_VALUE_1=0", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=n", "GIT_AUTHOR_EMAIL=e", "GIT_COMMITTER_NAME=n", "GIT_COMMITTER_EMAIL=e")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// B2, E1: hot_load.watch.
func TestPaths(t *testing.T) {
	some := []string{"src", "./conf/app.yaml", "late/x/y.py", "zz-probe"}
	before := files("src/main.py", "conf/app.yaml", "conf/other.yaml", "main.py")
	scenarios := []scenario{
		{name: "in a folder named", act: files("src/a/b.py"), want: "src/a/b.py"},
		{name: "a file named", act: save("conf/app.yaml", "other"), want: "conf/app.yaml"},
		{name: "a file named, saved atomically", act: swap("conf/app.yaml", "other"), want: "conf/app.yaml"},
		{name: "a file named, removed with its folder", act: remove("conf"), want: "conf/app.yaml"},
		{name: "a file named that appears", act: files("late/x/y.py"), want: "late/x/y.py"},
		{name: "a folder named, removed and remade", act: all(remove("src"), files("src/new.py")), want: "src/main.py"},
		{name: "a neighbour of a file named", act: all(save("conf/other.yaml", "other"), files("late/x/z.py", "late/y.py"))},
		{name: "a neighbour of a folder named", act: all(save("main.py", "other"), files("src2/x", "lib/y"))},
		{
			name: "all", opts: watch.Options{Paths: []string{"./", "src"}},
			act: save("main.py", "other"), want: "main.py",
		},
		{
			name: "a path out of the root", opts: watch.Options{Paths: []string{"../elsewhere", "zz-probe"}},
			act: files("../elsewhere/x", "elsewhere/x"),
		},
		{
			name: "a folder named that is a link", opts: watch.Options{Paths: []string{"linked", "zz-probe"}},
			before: all(files("../lib/x.py"), link("../lib", "linked")), act: files("../lib/sub/y.py"), want: "linked/sub/y.py",
		},
		{
			name: "a link to a folder that leads elsewhere now", opts: watch.Options{Paths: []string{"linked", "zz-probe"}},
			before: all(files("../lib/x.py"), save("../new/x.py", "new"), link("../lib", "linked")),
			act:    all(link("../new", "next"), move("next", "linked")), want: "linked/x.py",
		},
		{
			name: "a path excepted", opts: watch.Options{Except: []string{"tool.yaml", "./orla-tool.json"}},
			act: files("tool.yaml", "orla-tool.json"),
		},
		{
			name: "a file of the same name elsewhere", opts: watch.Options{Except: []string{"tool.yaml"}},
			act: files("src/tool.yaml"), want: "src/tool.yaml",
		},
		{
			name: "what is always ignored", opts: watch.Options{Globs: []string{"!node_modules", "!*.pyc"}, Gitignore: true},
			act: all(files("node_modules/x", "src/__pycache__/m.pyc", "m.pyc", ".git/HEAD"), save(".gitignore~", "")),
		},
	}
	for i := range scenarios {
		s := &scenarios[i]
		s.opts.Content = true
		if s.opts.Paths == nil && s.opts.Except == nil && s.opts.Globs == nil {
			s.opts.Paths = some
		}
		if s.before == nil {
			s.before = before
		}
	}
	run(t, scenarios)
}

// The same without Content, where folders count too.
func TestPathsByTheirLooks(t *testing.T) {
	opts := watch.Options{Paths: []string{"src", "late/x", "zz-probe"}}
	scenarios := []scenario{
		{name: "what only leads there", act: func(t *testing.T, root string) { mkdir(t, filepath.Join(root, "late")) }},
		{name: "what was named", act: func(t *testing.T, root string) { mkdir(t, filepath.Join(root, "late", "x")) }, want: "late/x"},
		{name: "a touch", act: touch("src/main.py"), want: "src/main.py"},
		{name: "a neighbour", act: files("main.py")},
	}
	for i := range scenarios {
		s := &scenarios[i]
		s.opts, s.before = opts, files("src/main.py")
	}
	run(t, scenarios)
}

// E3: what the manifest and the .gitignore files ignore.
func TestGlobsAndGitignore(t *testing.T) {
	globs := watch.Options{Globs: []string{"*.log", "data/**", "build/", "./out", "tmp-[0-9]"}}
	git := watch.Options{Gitignore: true}
	scenarios := []scenario{
		{name: "globs", opts: globs, act: files("a.log", "src/b.log", "data/x/y", "src/build/z", "out", "src/tmp-1")},
		{name: "no file is a folder", opts: globs, act: files("src/build"), want: "src/build"},
		{name: "another depth", opts: globs, act: files("src/data/x"), want: "src/data/x"},
		{name: "not at the root", opts: globs, act: files("src/out"), want: "src/out"},
		{
			name: "gitignore", opts: git, before: save(".gitignore", "*.log\n/out/\n!keep.log\n"),
			act: files("a.log", "src/b.log", "out/x"),
		},
		{
			name: "brought back", opts: git, before: save(".gitignore", "*.log\n!keep.log\n"),
			act: files("src/keep.log"), want: "src/keep.log",
		},
		{
			name: "nested", opts: git, before: save("src/.gitignore", "gen/\n"),
			act: files("src/gen/x", "src/a/gen/y"),
		},
		{
			name: "nested says nothing of what is above", opts: git, before: save("src/.gitignore", "gen/\n"),
			act: files("gen/x"), want: "gen/x",
		},
		{
			name: "a new .gitignore takes effect", opts: git, before: files("src/main.py"),
			act:  all(save("src/.gitignore", "*.out\n"), files("src/x.out", "src/y.out")),
			want: "src/.gitignore",
		},
		{
			name: "a new .gitignore takes effect at once", before: files("src/main.py"),
			opts: watch.Options{Gitignore: true, Except: []string{"src/.gitignore"}},
			act:  all(save("src/.gitignore", "*.out\n"), files("src/x.out", "src/y.out")),
		},
		{
			name: "what a .gitignore no longer says is watched", before: all(save(".gitignore", "out/\n"), files("out/x")),
			opts: watch.Options{Gitignore: true, Except: []string{".gitignore"}},
			act:  save(".gitignore", ""), want: "out/x",
		},
		{
			name: "what Globs ignore stays so", opts: watch.Options{Gitignore: true, Globs: []string{"*.log"}},
			before: save(".gitignore", "!*.log\n"), act: files("a.log"),
		},
		{
			name: "a path named counts", before: all(save(".gitignore", ".env\nsecret/\n"), files(".env", "secret/x", "secret/y")),
			opts: watch.Options{Gitignore: true, Paths: []string{".env", "secret", "zz-probe"}},
			act:  save("secret/x", "other"), want: "secret/x",
		},
	}
	for i := range scenarios {
		s := &scenarios[i]
		s.opts.Content = true
	}
	run(t, scenarios)
}
