package governance_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 8.3: rules do not open the gate by being gone. A file with rules that is empty, and a folder that has lost all
// its rules, deny every call, also after a restart, until they are back or an operator accepts it. An edit that leaves
// rules is one.
func TestT83RulesThatAreGoneDenyEveryCall(t *testing.T) {
	dir := t.TempDir()
	tools, elsewhere := filepath.Join(dir, "tools"), filepath.Join(dir, "user")
	cfg := configured(t)
	cfg.ToolsDir = tools
	memory := filepath.Join(dir, "state", "x.json")
	g := &governance.Gate{Memory: memory}
	in := func(folder, name string) string { return filepath.Join(folder, name) }
	a, b, user := in(tools, "a.yaml"), in(tools, "b.yaml"), in(elsewhere, "c.yaml")
	write := func(text string, files ...string) {
		t.Helper()
		for _, file := range files {
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(files ...string) {
		t.Helper()
		for _, file := range files {
			if err := os.RemoveAll(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	// set searches: a rule is in each file that is not empty, and in each document of a cluster.
	set := func(cluster ...string) (problems []string) {
		t.Helper()
		all := found(manifest.Rules{}, "x")
		all.Folders = []string{tools, elsewhere}
		for _, file := range []string{a, b, user} {
			if text, _ := os.ReadFile(file); strings.TrimSpace(string(text)) != "" {
				all.Rules = all.Rules.With(ruleAt(file))
			}
		}
		for _, name := range cluster {
			all.Rules = all.Rules.With(ruleAt(name))
		}
		g.Set(all, cfg)
		g.Listed(offering(t))
		for _, p := range all.Problems {
			if p.Denies {
				problems = append(problems, p.Path+": "+p.Err.Error())
			}
		}
		if g.Denies() != (len(problems) > 0) {
			t.Errorf("Denies is %v with the problems %q", g.Denies(), problems)
		}
		return problems
	}
	opens := func(when string, cluster ...string) {
		t.Helper()
		if got := set(cluster...); len(got) > 0 {
			t.Errorf("%s: %q", when, got)
		}
	}
	denies := func(when, at, why string) {
		t.Helper()
		for range 2 { // it stays
			got := set()
			if len(got) != 1 || !strings.HasPrefix(got[0], at+": ") || !strings.Contains(got[0], why) || !strings.Contains(got[0], "orla reload --accept-no-rules") {
				t.Errorf("%s: %q", when, got)
			}
		}
	}
	write("rules", a, b, user)
	opens("at first")
	remove(b)
	opens("one file of two is removed")
	if err := os.Rename(a, b); err != nil {
		t.Fatal(err)
	}
	opens("a file has another name")

	remove(b)
	denies("the last file of a folder is removed", tools, "had rules, in "+b)
	g = &governance.Gate{Memory: memory}
	denies("after a restart", tools, "had rules, in "+b)
	write("rules", a)
	opens("there are rules again")

	write("rules", b)
	opens("there are two")
	write(" \n\t\n", b)
	denies("a file is empty", b, "is empty, and had rules")
	write("", b)
	denies("a file has no bytes", b, "is empty")
	remove(b)
	opens("an empty file is removed, and others have rules")

	var accepted []string
	note := func(at string, _ error) { accepted = append(accepted, at) }
	accepts := func(when string, places ...string) {
		t.Helper()
		g.AcceptNoRules(note)
		opens(when)
		opens("and stays so")
		if !slices.Equal(accepted, places) {
			t.Errorf("%s: it says %q, want %q", when, accepted, places)
		}
		accepted = nil
	}
	remove(user)
	denies("another folder", elsewhere, "had rules")
	accepts("it is accepted", elsewhere)
	g = &governance.Gate{Memory: memory}
	opens("after a restart, too")
	accepts("nothing is gone")
	write("rules", b)
	opens("there are two again")
	write("", a, b)
	accepts("empty files are accepted", a, b)
	write("rules", a, b)
	opens("there are two again")
	if err := os.Rename(tools, tools+".away"); err != nil {
		t.Fatal(err)
	}
	denies("the folder is away", tools, "is not there, and the rules in it")
	accepts("the folder is accepted, once for all files in it", tools)
	write("rules", a)
	opens("a folder is there")
	write("", a)
	denies("once it was accepted, the next one is not", a, "is empty")
	accepts("an empty file is accepted", a)

	opens("a cluster has rules", "AgentPolicy/x:1:1")
	opens("a cluster has none: somebody has removed them with kubectl")
}

// ruleAt is a rule in a file.
func ruleAt(file string) manifest.Rules {
	at := file + ":1:1"
	return manifest.Rules{Policies: []manifest.Policy{{
		Reference: manifest.Reference{Name: filepath.Base(file), At: at}, Global: true, Blocked: []manifest.Reference{{Name: "x", At: at}},
	}}}
}

// SPEC-TOOLS 8.3: without rules, what cannot be read of those before denies every call, and is not overwritten; a FIFO is not
// waited for.
func TestT83WhereRulesWereIsUnknown(t *testing.T) {
	dir := t.TempDir()
	cfg := configured(t)
	for name, spoil := range map[string]func(at string) error{
		"a FIFO":   func(at string) error { return syscall.Mkfifo(at, 0o600) },
		"a link":   func(at string) error { return os.Symlink("/dev/null", at) },
		"a folder": func(at string) error { return os.Mkdir(at, 0o700) },
		"nonsense": func(at string) error { return os.WriteFile(at, []byte("{"), 0o600) },
	} {
		memory := filepath.Join(dir, name)
		if err := spoil(memory); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			g := &governance.Gate{Memory: memory}
			all := found(manifest.Rules{}, "x")
			g.Set(all, cfg)
			if !g.Denies() || len(all.Problems) != 1 || all.Problems[0].Path != memory {
				t.Errorf("%s: %v, %v", name, g.Denies(), all.Problems)
			}
			var accepted []string
			g.AcceptNoRules(func(at string, _ error) { accepted = append(accepted, at) })
			g.Set(found(manifest.Rules{}, "x"), cfg)
			if g.Denies() || !slices.Equal(accepted, []string{memory}) {
				t.Errorf("%s: calls are denied, and it was accepted for %q", name, accepted)
			}
			if err := os.RemoveAll(memory); err != nil {
				t.Fatal(err)
			}
			if err := spoil(memory); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// SPEC-TOOLS 8.3: a file that had rules and is damaged denies every call, whatever other files have: a crash of the machine
// leaves NULs, or the beginning of a file. One that has other resources now was edited.
func TestT83ADamagedFileOfRulesDenies(t *testing.T) {
	const tool = "apiVersion: orloj.dev/v1\nkind: Secret\nmetadata: {name: s}\nspec: {stringData: {value: x}}\n"
	dir := t.TempDir()
	cfg := configured(t)
	cfg.ToolsDir = dir
	file, other := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write := func(text string) error { return os.WriteFile(file, []byte(text), 0o600) }
	for name, c := range map[string]struct {
		spoil func() error
		why   string // "" for what is an edit
	}{
		"NULs":               {func() error { return write(strings.Repeat("\x00", 4096)) }, "is damaged"},
		"random bytes":       {func() error { return write("\x8f\x02\xf3:[\x1b{\xc0") }, "is damaged"},
		"a byte order mark":  {func() error { return write("\xef\xbb\xbf") }, "is damaged"},
		"a comment":          {func() error { return write("# nothing\n") }, "is damaged"},
		"nothing in braces":  {func() error { return write("{}\n") }, "is damaged"},
		"null":               {func() error { return write("null\n") }, "is damaged"},
		"an empty list":      {func() error { return write("[]\n") }, "is damaged"},
		"an empty document":  {func() error { return write("---\n") }, "is damaged"},
		"somebody's data":    {func() error { return write("services: {a: {image: b}}\n") }, "is damaged"},
		"two bytes":          {func() error { return write("ap") }, "is damaged"},
		"the version":        {func() error { return write("apiVersion: orloj.dev/v1\n") }, "is damaged"},
		"a half kind":        {func() error { return write("apiVersion: orloj.dev/v1\nkind: Tool") }, "is damaged"},
		"a tool and NULs":    {func() error { return write(tool + "---\n\x00\x00\x00") }, "is damaged"},
		"a tool and a half":  {func() error { return write(tool + "---\napiVersion: orloj.dev/v1\nkind: Agent") }, "is damaged"},
		"a folder":           {func() error { return os.Mkdir(file, 0o700) }, "is a folder"},
		"a folder elsewhere": {func() error { return os.Symlink(t.TempDir(), file) }, "is a folder"},
		"a tool":             {func() error { return write(tool) }, ""},
	} {
		memory := filepath.Join(t.TempDir(), "x.json")
		rules := ruleAt(other)
		set := func(g *governance.Gate, rules manifest.Rules) *manifest.Result {
			all := found(rules, "x")
			all.Folders = []string{dir}
			g.Set(all, cfg)
			return all
		}
		if err := os.WriteFile(other, []byte("rules"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := write("rules"); err != nil {
			t.Fatal(err)
		}
		set(&governance.Gate{Memory: memory}, rules.With(ruleAt(file)))
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := c.spoil(); err != nil {
			t.Fatal(err)
		}
		g := &governance.Gate{Memory: memory} // after a restart
		for range 2 {
			all := set(g, rules)
			if g.Denies() != (c.why != "") {
				t.Errorf("%s: Denies is %t", name, g.Denies())
			}
			if c.why != "" && (len(all.Problems) != 1 || all.Problems[0].Path != file || !strings.Contains(all.Problems[0].Err.Error(), c.why)) {
				t.Errorf("%s: %v", name, all.Problems)
			}
		}
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
		if set(g, rules); g.Denies() {
			t.Errorf("%s: every call is denied, though it is gone and others have rules", name)
		}
	}
}
