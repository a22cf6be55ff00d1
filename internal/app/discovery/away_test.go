package discovery_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/testing/manifesttest"
)

// SPEC-TOOLS 8.3: rules that were there close the gate when a link on the way to them leads nowhere, or the folder of tools
// is away, wherever that is: in a package, behind another link, and in the user's own folder. So does a folder that has
// lost its last rules. What somebody has removed with others left opens it.
func TestT83RulesThatAreAway(t *testing.T) {
	const policy = "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: no}\nspec: {apply_mode: global, blocked_tools: [hello]}\n"
	for name, c := range map[string]struct {
		place  string            // of the file with the rules, below the folder of the test
		links  map[string]string // targets, by where they are
		away   string            // what is moved away
		with   string            // what it becomes: "", link or file
		denied string            // the path that is reported; "" if nothing is denied, since tools has another rule
	}{
		"a link in a package":                     {"far/p.yaml", map[string]string{"tools/pack/more": "../../far"}, "far", "", "tools/pack/more"},
		"a link in a folder of a package":         {"far/p.yaml", map[string]string{"tools/pack/sub/more": "../../../far"}, "far", "", "tools/pack/sub/more"},
		"a link in a folder behind a link":        {"far/p.yaml", map[string]string{"tools/more": "../near", "near/again": "../far"}, "far", "", "tools/more/again"},
		"the first of two links":                  {"far/p.yaml", map[string]string{"tools/more": "../near", "near/again": "../far"}, "near", "", "tools/more"},
		"a link to a link":                        {"far/p.yaml", map[string]string{"tools/pack/more": "../../one", "one": "far"}, "one", "", "tools/pack/more"},
		"a link that leads to a folder of a file": {"far/sub/p.yaml", map[string]string{"tools/pack/more": "../../far/sub"}, "far", "file", "tools/pack/more"},
		"a link in a version of a package":        {"far/p.yaml", map[string]string{"tools/vers/1.0.0/more": "../../../far"}, "far", "", "tools/vers/1.0.0/more"},
		"the user's folder":                       {"home/.orla/tools/p.yaml", nil, "home/.orla/tools", "", "home/.orla/tools"},
		"the folder of the user's folder":         {"home/.orla/tools/p.yaml", nil, "home/.orla", "", "home/.orla/tools"},
		"the user's folder becomes a link":        {"home/.orla/tools/p.yaml", nil, "home/.orla/tools", "link", "home/.orla/tools"},
		"the user's folder becomes a file":        {"home/.orla/tools/p.yaml", nil, "home/.orla/tools", "file", "home/.orla/tools"},
		"a package of the user's":                 {"far/p.yaml", map[string]string{"home/.orla/tools/pack/more": "../../../../far"}, "far", "", "home/.orla/tools/pack/more"},
		"somebody removes the file":               {"tools/sub/p.yaml", nil, "tools/sub/p.yaml", "", "tools"},
		"somebody removes one file of two":        {"tools/sub/p.yaml", nil, "tools/sub/p.yaml", "", ""},
		"somebody removes its folder":             {"tools/sub/p.yaml", nil, "tools/sub", "", "tools"},
		"somebody removes the link":               {"far/p.yaml", map[string]string{"tools/pack/more": "../../far"}, "tools/pack/more", "", "tools"},
		"somebody removes the package":            {"far/p.yaml", map[string]string{"tools/pack/more": "../../far"}, "tools/pack", "", "tools"},
		"somebody removes the user's file":        {"home/.orla/tools/p.yaml", nil, "home/.orla/tools/p.yaml", "", "home/.orla/tools"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, aside := t.TempDir(), filepath.Join(t.TempDir(), "aside")
			under := func(path string) string { return filepath.Join(dir, path) }
			manifesttest.Write(t, under("tools"), "hello", manifesttest.Script, 0o755)
			for _, pack := range []string{"tools/pack", "tools/vers/1.0.0", "home/.orla/tools/pack"} {
				manifesttest.WritePackage(t, under(pack), strings.ReplaceAll(filepath.Base(filepath.Dir(pack))+"x", ".", ""), "1.0.0")
			}
			for at, to := range c.links {
				if err := os.MkdirAll(filepath.Dir(under(at)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, under(at)); err != nil {
					t.Fatal(err)
				}
			}
			manifesttest.Write(t, filepath.Dir(under(c.place)), filepath.Base(c.place), policy, 0o644)
			rules := 1
			if c.denied == "" {
				rules = 2
				manifesttest.Write(t, under("tools"), "other.yaml", strings.Replace(policy, "name: no", "name: other", 1), 0o644)
			}
			cfg := &config.Loaded{}
			cfg.ToolsDir = under("tools")
			memory := under("memory.json")
			gate := &governance.Gate{Memory: memory}
			look := func() (denies []string) {
				found := discovery.Find(cfg, under("home"))
				gate.Set(&found, cfg)
				for _, p := range found.Problems {
					if p.Denies {
						denies = append(denies, strings.TrimPrefix(p.Path, dir+"/"))
					}
				}
				if gate.Denies() != (len(denies) > 0) {
					t.Errorf("the gate denies: %t; problems: %q", gate.Denies(), denies)
				}
				return denies
			}
			if denies := look(); len(denies) > 0 || len(gate.Documents().Policies) != rules {
				t.Fatalf("at first %q deny, and the rules are %+v", denies, gate.Documents())
			}
			if err := os.Rename(under(c.away), aside); err != nil {
				t.Fatal(err)
			}
			switch c.with {
			case "link":
				if err := os.Symlink("nothing", under(c.away)); err != nil {
					t.Fatal(err)
				}
			case "file":
				manifesttest.Write(t, filepath.Dir(under(c.away)), filepath.Base(c.away), "", 0o644)
			}
			for _, when := range []string{"at once", "again", "after a start"} {
				if when == "after a start" {
					gate = &governance.Gate{Memory: memory}
				}
				if got := strings.Join(look(), " "); got != c.denied {
					t.Errorf("%s %q is denied for; want %q", when, got, c.denied)
				}
			}
			if c.with != "" {
				if err := os.Remove(under(c.away)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Rename(aside, under(c.away)); err != nil {
				t.Fatal(err)
			}
			if denies := look(); len(denies) > 0 || len(gate.Documents().Policies) != rules {
				t.Errorf("at last %q deny, and the rules are %+v", denies, gate.Documents())
			}
		})
	}
}
