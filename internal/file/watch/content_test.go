package watch_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/file/watch"
	"github.com/orla-project/orla/internal/testing/needs"
)

// E3: a file whose content is unchanged makes no reload; all else makes one.
func TestContent(t *testing.T) {
	content := watch.Options{Content: true}
	src := files("src/main.py", "src/util.py")
	big := strings.Repeat("x", 17<<20)
	scenarios := []scenario{
		{name: "a bare touch", act: touch("src/main.py")},
		{name: "a save without a change", act: save("src/main.py", "src/main.py")},
		{name: "an atomic save without a change", act: swap("src/main.py", "src/main.py")},
		{name: "a change and its undoing", act: all(save("src/main.py", "other"), save("src/main.py", "src/main.py"))},
		{name: "files that come and go", act: all(files("new/a", "new/b"), remove("new"))},
		{name: "a folder away and back", act: all(move("src", "away"), move("away", "src"))},
		{name: "a folder removed and remade", act: all(remove("src"), src)},
		{name: "an empty folder", act: func(t *testing.T, root string) { mkdir(t, filepath.Join(root, "empty", "too")) }},
		{name: "permissions", act: all(chmod("src/main.py", 0o640), chmod("src", 0o711))},

		{name: "a save", act: save("src/main.py", "other"), want: "src/main.py"},
		{name: "a save of the same size", act: swap("src/main.py", "SRC/MAIN.PY"), want: "src/main.py"},
		{name: "an atomic save", act: swap("src/main.py", "other"), want: "src/main.py"},
		{name: "an added file", act: files("src/new.py"), want: "src/new.py"},
		{name: "an empty file", act: save("src/new.py", ""), want: "src/new.py"},
		{name: "a removed file", act: remove("src/util.py"), want: "src/util.py"},
		{name: "a removed folder", act: remove("src"), want: "*"},
		{name: "a moved folder", act: move("src", "lib"), want: "src/main.py", polled: "lib/main.py"},
		{name: "an executable bit", act: chmod("src/main.py", 0o700), want: "src/main.py"},
		{name: "a file in the place of a folder", act: all(remove("src"), save("src", "")), want: "*"},
		{name: "a new folder", act: files("a/b/c.py"), want: "a/b/c.py"},
		{name: "what is unchanged is not named", act: all(touch("src/main.py"), save("src/util.py", "other")), want: "src/util.py"},

		{
			name:   "a large file counts by its time",
			before: all(src, save("src/data", big)), act: touch("src/data"), want: "src/data",
		},
		{
			name:   "a link counts as its file",
			before: all(src, link("src/main.py", "run")), act: all(remove("run"), files("run"), save("run", "src/main.py")),
		},
		{
			name:   "what a link leads to",
			before: all(src, files("../elsewhere/x"), link("../elsewhere/x", "run")), act: save("../elsewhere/x", "other"), want: "run",
		},
		{
			name:   "an atomic save of what a link leads to",
			before: all(src, files("../elsewhere/x"), link("../elsewhere/x", "run")), act: swap("../elsewhere/x", "other"), want: "run",
		},
		{
			name:   "neighbours of what a link leads to",
			before: all(src, files("../elsewhere/x"), link("../elsewhere/x", "run")), act: files("../elsewhere/y"),
		},
		{
			name:   "a link that leads nowhere yet",
			before: all(src, files("../elsewhere/x"), link("../elsewhere/y", "run")), act: files("../elsewhere/y"), want: "run",
		},
		{
			name:   "a pipe is not opened",
			before: src, act: func(t *testing.T, root string) { fifo(t, filepath.Join(root, "pipe")) }, want: "pipe",
		},
	}
	for i := range scenarios {
		s := &scenarios[i]
		s.opts = content
		if s.before == nil {
			s.before = src
		}
	}
	run(t, scenarios)
}

// E3: each of these makes exactly one reload.
func TestBursts(t *testing.T) {
	needs.Time(t, "waits for silence")
	src := files("src/main.py", "src/util.py")
	k8s := func(version, content string) func(t *testing.T, root string) {
		return all(save(".."+version+"/conf", content), link(".."+version, "..data_tmp"), move("..data_tmp", "..data"))
	}
	many := func(n int) func(t *testing.T, root string) {
		return func(t *testing.T, root string) {
			t.Helper()
			for i := range n {
				save(fmt.Sprintf("dir-%02d/sub/file-%04d", i%20, i), fmt.Sprint(i))(t, root)
			}
		}
	}
	scenarios := []scenario{
		{
			name: "vim without backupcopy", before: src,
			act:  all(move("src/main.py", "src/main.py~"), save("src/main.py", "other"), remove("src/main.py~")),
			want: "src/main.py",
		},
		{name: "mkdir -p and write", before: src, act: files("a/b/c/d"), want: "a/b/c/d"},
		{
			name: "the root removed and remade", before: src,
			act: all(remove("."), src, files("zz-probe"), save("src/main.py", "other")), want: "*",
		},
		{
			name: "the root replaced by a rename", before: all(src, files("../next/src/main.py", "../next/src/util.py")),
			act: all(move(".", "../old"), move("../next", ".")), want: "src/main.py",
		},
		{
			name: "another root with the same content", before: src,
			act: func(t *testing.T, root string) {
				all(src, save("zz-probe", "one"))(t, root+".next")
				rename(t, root, root+".old")
				rename(t, root+".next", root)
			},
			want: ".", // whoever stood in the old one stands nowhere
		},
		{
			name: "a swap of a mounted volume", before: all(k8s("1", "one"), link("..data/conf", "conf")),
			act: all(k8s("2", "two"), remove("..1")), opts: watch.Options{Paths: []string{"conf", "zz-probe"}}, want: "conf",
		},
		{
			name: "a swap of a mounted volume to the same", before: all(k8s("1", "one"), link("..data/conf", "conf")),
			act: all(k8s("2", "one"), remove("..1")), opts: watch.Options{Paths: []string{"conf", "zz-probe"}},
		},
		{name: "300 files", before: src, act: many(300), want: "dir-00/sub/file-0000"},
		{name: "1000 files removed", before: many(1000), act: func(t *testing.T, root string) {
			t.Helper()
			for i := range 20 {
				remove(fmt.Sprintf("dir-%02d", i))(t, root)
			}
		}, want: "*"},
		{name: "1000 files there and back", before: many(1000), act: func(t *testing.T, root string) {
			t.Helper()
			for i := range 20 {
				remove(fmt.Sprintf("dir-%02d", i))(t, root)
			}
			many(1000)(t, root)
		}},
	}
	for i := range scenarios {
		s := &scenarios[i]
		s.opts.Content = true
	}
	run(t, scenarios)
}

// E3: a root that is a link, of which both ends may change.
func TestLinkedRoot(t *testing.T) {
	t.Parallel()
	for _, content := range []bool{false, true} {
		base := t.TempDir()
		for _, release := range []string{"one", "two"} {
			save(release+"/main.py", release)(t, base)
		}
		link("one", "current")(t, base)
		root := filepath.Join(base, "current")
		w := serve(t, root, watch.Options{Debounce: quick, Content: content})
		main := filepath.Join(root, "main.py")
		live := func(release string) {
			t.Helper()
			for i := range 20 {
				save(release+"/main.py", release+fmt.Sprint(i))(t, base)
				if c := next(t, w); c.Path == main && i > 0 {
					return
				}
			}
			t.Fatalf("no Change names %q", main)
		}
		live("one")
		all(link("two", "next"), move("next", "current"))(t, base)
		next(t, w)
		live("two")
		all(remove("two"), save("two/main.py", "remade"))(t, base)
		next(t, w)
		live("two")
	}
}

// E3, with the real thing.
func TestGitCheckoutIsOneChange(t *testing.T) {
	needs.Time(t, "waits for silence")
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	repo := func(n int) func(t *testing.T, root string) {
		return func(t *testing.T, root string) {
			t.Helper()
			commit := func(branch string) {
				for i := range n {
					save(fmt.Sprintf("d%d/f%04d", i%7, i), branch)(t, root)
				}
				git(t, root, "add", ".")
				git(t, root, "commit", "-qm", branch)
			}
			git(t, root, "init", "-q", "-b", "one")
			commit("one")
			git(t, root, "checkout", "-qb", "two")
			files("only/in/two")(t, root)
			commit("two")
		}
	}
	checkout := func(branches ...string) func(t *testing.T, root string) {
		return func(t *testing.T, root string) {
			t.Helper()
			for _, branch := range branches {
				git(t, root, "checkout", "-q", branch)
			}
		}
	}
	opts := watch.Options{Content: true, Gitignore: true, Debounce: time.Second}
	run(t, []scenario{
		{name: "300 files", opts: opts, before: repo(300), act: checkout("one"), want: "*"},
		{name: "1000 files", opts: opts, before: repo(1000), act: checkout("one"), want: "*"},
		{name: "300 files there and back", opts: opts, before: repo(300), act: checkout("one", "two")},
	})
}
