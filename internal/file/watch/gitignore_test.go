package watch

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
		rs := parseRules(strings.Split(tt.lines, "\n"))
		if got := append(rs, rs.emptied()...).ignore(name, isDir); got != tt.want {
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
	for round := range 150 {
		top, nested := lines(), lines()
		if round == 0 { // a folder of which nothing counts, until it says so itself
			top, nested = "a/**\n", "!*\n"
		}
		mustDo(t, os.WriteFile(filepath.Join(root, ".gitignore"), []byte(top), 0o600))
		mustDo(t, os.WriteFile(filepath.Join(root, "a", ".gitignore"), []byte(nested), 0o600))
		want := strings.FieldsFunc(run(strings.Join(files, "\x00"), "check-ignore", "--no-index", "-z", "--stdin"), func(c rune) bool { return c == 0 })

		kept := newTree(root, newScope(root, Options{Gitignore: true, Ignore: Ignored}), false)
		_, _, err := kept.compare(".", false, nil)
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
		rs := parseRules(strings.Split(text, "\n"))
		for _, isDir := range []bool{false, true} {
			if ignored, decided := rs.decide(name, isDir); ignored && !decided {
				t.Error(fmt.Sprint(rs), "ignore", name, "undecided")
			}
		}
	})
}
