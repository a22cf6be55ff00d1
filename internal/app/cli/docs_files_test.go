package cli

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// docsFiles writes what a package brings beside the program, and returns the folder.
func docsFiles(t *testing.T) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	if err := writeDocs(newRoot(terminal.Streams{}), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The man page has every command, flag and key (SPEC K2).
func TestManPageIsComplete(t *testing.T) {
	page := strings.ReplaceAll(testkit.ReadFile(t, filepath.Join(docsFiles(t), "orla.1")), `\-`, "-")
	if !strings.HasPrefix(page, `.TH ORLA 1 "2023-11-14" "orla `) {
		t.Errorf("its head is %.60q", page)
	}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		_, body, ok := strings.Cut(page, "\n.SS \""+strings.TrimSuffix(cmd.UseLine(), " [flags]")+"\"\n")
		if !ok && cmd.HasParent() {
			t.Errorf("it has no section for %q", cmd.CommandPath())
		}
		body, _, _ = strings.Cut(body, "\n.S")
		flags := cmd.LocalNonPersistentFlags()
		if !cmd.HasParent() {
			body, flags = page, cmd.PersistentFlags()
		}
		flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !regexp.MustCompile(`(?m)^\.B ".*--`+f.Name+`[ "]`).MatchString(body) {
				t.Errorf("%s: it has no flag --%s", cmd.CommandPath(), f.Name)
			}
		})
		for _, below := range cmd.Commands() {
			visit(below)
		}
	}
	visit(newRoot(terminal.Streams{}))
	for _, k := range config.Described() {
		if !strings.Contains(page, "\n.B \""+k.Key+"\"\n") {
			t.Errorf("it has no key %s", k.Key)
		}
	}
}

// Those who read man pages for a living find no fault with it.
func TestManPageIsWellFormed(t *testing.T) {
	needs.Programs(t, "mandoc")
	page := filepath.Join(docsFiles(t), "orla.1")
	if out, err := exec.Command("mandoc", "-Tlint", page).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("mandoc: %v\n%s", err, out)
	}
}

func TestCompletionsAreScripts(t *testing.T) {
	dir := docsFiles(t)
	needs.Programs(t, "bash")
	if out, err := exec.Command("bash", "-n", filepath.Join(dir, "orla.bash")).CombinedOutput(); err != nil {
		t.Errorf("bash: %v\n%s", err, out)
	}
	if text := testkit.ReadFile(t, filepath.Join(dir, "orla.zsh")); !strings.HasPrefix(text, "#compdef orla\n") {
		t.Errorf("zsh does not find it: %.40q", text)
	}
	if text := testkit.ReadFile(t, filepath.Join(dir, "orla.fish")); !strings.Contains(text, "complete -c orla") {
		t.Error("fish is told nothing")
	}
}
