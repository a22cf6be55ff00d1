package watch

import (
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
)

func TestRules(t *testing.T) {
	tests := []struct {
		lines string
		path  string // of a folder, if it ends in a slash
		want  bool
	}{
		{"*.log", "a.log", true},
		{"*.log", "x/y/a.log", true},
		{"*.log", ".log", true},
		{"*.log", "a.log.txt", false},
		{"build/", "build/", true},
		{"build/", "x/build/", true},
		{"build/", "build", false},
		{"/build", "build", true},
		{"/build", "x/build", false},
		{"a/b", "a/b", true},
		{"a/b", "x/a/b", false},
		{"a/*", "a/b", true},
		{"a/*", "a/b/c", false},
		{"**/b", "a/x/b", true},
		{"**/b", "b", true},
		{"a/**/b", "a/b", true},
		{"a/**/b", "a/x/y/b", true},
		{"data/**", "data/x", true},
		{"data/**", "data/x/y", true},
		{"data/**", "data/", true}, // nothing in it counts
		{"data/**", "data", false}, // this is a file
		{"data/**\n!data/keep", "data/", false},
		{"data/**\n!data/keep", "data/keep", false},
		{"data/**/", "data/", false},
		{"*.log\n!keep.log", "keep.log", false},
		{"!keep.log\n*.log", "keep.log", true},
		{"# note", "# note", false},
		{`\# note`, "# note", true},
		{`\!x`, "!x", true},
		{"x  ", "x", true},
		{`x\ `, "x ", true},
		{"x\r", "x", true},
		{"x?z", "xyz", true},
		{"x?z", "x/z", false},
		{"x[0-9]", "x5", true},
		{"x[!0-9]", "x5", false},
		{"x[^0-9]", "xa", true},
		{"x{a,b}", "xa", false},
		{"x{a,b}", "x{a,b}", true},
		{`x\{`, "x{", true},
		{"x[", "x[", false},
		{`x\`, `x\`, false},
		{"**", "a/b", true},
		{"/", "a", false},
		{"", "a", false},
		{"  ", "a", false},
	}
	for _, tt := range tests {
		name, isDir := strings.CutSuffix(tt.path, "/")
		rs, _ := parseRules(strings.SplitSeq(tt.lines, "\n"), maxRules)
		if got := append(rs, rs.emptied()...).ignore(name, isDir, nil); got != tt.want {
			t.Errorf("%q ignores %q: %v, want %v", tt.lines, tt.path, got, tt.want)
		}
	}
}

// E3: what .gitignore says, as git reads it.
func TestGitignoreAsGitReadsIt(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	root := t.TempDir()
	run := func(stdin string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Stdin = root, strings.NewReader(stdin)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.Output() // check-ignore fails if there is nothing to say
		if err != nil && args[0] != "check-ignore" {
			t.Fatal(err)
		}
		return string(out)
	}
	run("", "init", "-q")
	var files []string
	for _, dir := range []string{".", "a", "a/b", "a/b/a", "b", "b/ab"} {
		mustDo(t, os.MkdirAll(filepath.Join(root, dir), 0o700))
		for _, name := range []string{"x", "ab.x", ".x", "a{b"} {
			files = append(files, path.Join(dir, name))
			mustDo(t, os.WriteFile(filepath.Join(root, dir, name), nil, 0o600))
		}
	}
	r := rand.New(rand.NewPCG(1, 0))
	parts := []string{"a", "b", "x", "*", "**", "/", "/", "/**/", "?", ".", "[ab]", "!", "{", " ", `\`, "ab"}
	odd := regexp.MustCompile(`[^/\n]\*\*|\*\*[^/\n]`) // git's manual does not say what that is
	lines := func() string {
		for {
			var text strings.Builder
			for range r.IntN(4) {
				for range r.IntN(5) {
					text.WriteString(parts[r.IntN(len(parts))])
				}
				text.WriteByte('\n')
			}
			if !odd.MatchString(text.String()) {
				return text.String()
			}
		}
	}
	for round := range needs.Rounds(30, 60) {
		top, nested := lines(), lines()
		if round == 0 { // a folder of which nothing counts, until it says so itself
			top, nested = "a/**\n", "!*\n"
		}
		mustDo(t, os.WriteFile(filepath.Join(root, ".gitignore"), []byte(top), 0o600))
		mustDo(t, os.WriteFile(filepath.Join(root, "a", ".gitignore"), []byte(nested), 0o600))
		want := strings.FieldsFunc(run(strings.Join(files, "\x00"), "check-ignore", "--no-index", "-z", "--stdin"), func(c rune) bool { return c == 0 })

		kept := newTree(root, newScope(root, Options{Gitignore: true, Ignore: Ignored}), false, NewHub().looks)
		_, _, err := kept.compare(t.Context(), ".", false, nil)
		mustDo(t, err)
		for _, file := range files {
			_, got := kept.seen[file]
			if got == slices.Contains(want, file) {
				t.Errorf("with %q, and %q in a: %q counts: %v; git thinks otherwise", top, nested, file, got)
			}
		}
	}
}

func FuzzRules(f *testing.F) {
	for _, seed := range []string{"*.log\n!keep.log\n", "/a/**/b/", "x[", `x\`, "**", "[!a-", "{}"} {
		f.Add(seed, "a/b/keep.log")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		if !fs.ValidPath(name) || len(text)+len(name) > 1000 {
			return
		}
		rs, _ := parseRules(strings.SplitSeq(text, "\n"), maxRules)
		for _, isDir := range []bool{false, true} {
			if ignored, decided := rs.decide(name, isDir, nil); ignored && !decided {
				t.Error(fmt.Sprint(rs), "ignore", name, "undecided")
			}
		}
	})
}

// SPEC E3, S2: what the rules of a tree cost is bounded, whatever its files hold, and
// whoever has more is told.
func TestRulesAreBounded(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		mustDo(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700), os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	var said strings.Builder
	w := New(root, Options{Gitignore: true, Content: true, Log: slog.New(slog.NewTextHandler(&said, nil))})
	git := w.tree.scope.git
	look := func() {
		t.Helper()
		_, _, err := w.tree.compare(t.Context(), ".", false, nil)
		mustDo(t, err)
		w.sayRules()
	}

	write(".gitignore", "first\n"+strings.Repeat("# a note\n", 10_000)+strings.Repeat("a\n", maxRules-2)+"last\n")
	write("first", "")
	write("last", "")
	look()
	if _, first := w.tree.seen["first"]; first {
		t.Error("the first of the rules is not read")
	}
	if _, last := w.tree.seen["last"]; last || said.Len() > 0 {
		t.Errorf("the last of the rules that one file may have is not read: %s", &said)
	}

	write(".gitignore", strings.Repeat("a\n", maxRules)+"last\n")
	look()
	look()
	if _, last := w.tree.seen["last"]; !last || git.taken != maxRules {
		t.Errorf("%d rules of a file are read, want %d", git.taken, maxRules)
	}
	if n := strings.Count(said.String(), "too many"); n != 1 || !strings.Contains(said.String(), filepath.Join(root, ".gitignore")) {
		t.Errorf("it is said %d times that there are more: %s", n, &said)
	}

	for i := range 10 {
		write(fmt.Sprintf("d%d/.gitignore", i), strings.Repeat("a\n", maxRules/2))
		write(fmt.Sprintf("e%d/.gitignore", i), strings.Repeat("b\n", 500_000))
	}
	look()
	if git.taken != maxAllRules {
		t.Errorf("%d rules of a tree are read, want %d", git.taken, maxAllRules)
	}
	for i := range 10 { // what is gone takes no room
		mustDo(t, os.RemoveAll(filepath.Join(root, fmt.Sprintf("d%d", i))), os.RemoveAll(filepath.Join(root, fmt.Sprintf("e%d", i))))
	}
	write("f/.gitignore", "last\n")
	look()
	if git.taken != maxRules+1 || len(git.folders) != 2 {
		t.Errorf("%d rules of %d folders are kept, want %d of 2", git.taken, len(git.folders), maxRules+1)
	}

	write(".gitignore", strings.Repeat("**/a/", maxAnyDepth+1)+"b\nlast\n")
	if w := New(root, Options{Gitignore: true}); w.LeftOut() == "" {
		t.Error("a rule that takes long to compare is read")
	}
	write(".gitignore", strings.Repeat("x", maxRule+1)+"\nlast\n")
	look()
	if _, last := w.tree.seen["last"]; last || git.taken != 2 {
		t.Errorf("with a rule that is too long %d are read, want those after it", git.taken)
	}
}
