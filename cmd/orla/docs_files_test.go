package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/orla-project/orla/internal/needs"
)

// docsFiles writes what a package brings beside the program, and returns the folder.
func docsFiles(t *testing.T) string {
	t.Helper()
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	dir := t.TempDir()
	if err := writeDocs(newRoot(stdio{}), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The man page has every command, flag and key (SPEC K2).
func TestManPageIsComplete(t *testing.T) {
	page := strings.ReplaceAll(readFile(t, filepath.Join(docsFiles(t), "orla.1")), `\-`, "-")
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
	visit(newRoot(stdio{}))
	for _, key := range keys() {
		if !strings.Contains(page, "\n.B \""+key+"\"\n") {
			t.Errorf("it has no key %s", key)
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

// The sample has every key, and says what holds without it (SPEC H1).
func TestSampleConfigIsTheDefaults(t *testing.T) {
	sample := readFile(t, filepath.Join(docsFiles(t), "orla.yaml"))
	for line := range strings.Lines(sample) {
		if line != "\n" && !strings.HasPrefix(line, "#") {
			t.Errorf("it sets something: %s", line)
		}
	}
	set := regexp.MustCompile(`(?m)^#([a-z]|  )`).ReplaceAllString(sample, "$1")
	path := filepath.Join(t.TempDir(), "orla.yaml")
	if err := os.WriteFile(path, []byte(set), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := (&loader{path: path}).load()
	if err != nil {
		t.Fatalf("without its comment signs it has faults: %v\n%s", err, set)
	}
	want := defaults()
	want.ToolsDir = filepath.Join(filepath.Dir(path), want.ToolsDir)
	for _, key := range keys() {
		if got.originOf(key).rank != fromFile {
			t.Errorf("%s is not there", key)
		}
		if isSample := slices.ContainsFunc(sampleKeys(), func(s string) bool { return s == key || strings.HasPrefix(s, key+".") }); isSample {
			continue
		}
		if have, want := value(&got.Config, key).Interface(), value(&want, key).Interface(); !same(have, want) {
			t.Errorf("%s is shown as %v; the default is %v", key, have, want)
		}
	}
}

func sampleKeys() []string {
	var list []string
	for key := range sampleValues {
		list = append(list, key)
	}
	return list
}

// same takes an empty list for none.
func same(a, b any) bool {
	v, w := reflect.ValueOf(a), reflect.ValueOf(b)
	if v.Kind() == reflect.Slice && v.Len() == 0 && w.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a, b)
}

func TestCompletionsAreScripts(t *testing.T) {
	dir := docsFiles(t)
	needs.Programs(t, "bash")
	if out, err := exec.Command("bash", "-n", filepath.Join(dir, "orla.bash")).CombinedOutput(); err != nil {
		t.Errorf("bash: %v\n%s", err, out)
	}
	if text := readFile(t, filepath.Join(dir, "orla.zsh")); !strings.HasPrefix(text, "#compdef orla\n") {
		t.Errorf("zsh does not find it: %.40q", text)
	}
	if text := readFile(t, filepath.Join(dir, "orla.fish")); !strings.Contains(text, "complete -c orla") {
		t.Error("fish is told nothing")
	}
}

// SPEC I1: on a terminal the log is for people, unless it goes to a file or somebody says
// otherwise.
func TestI1OnATerminalTheLogIsForPeople(t *testing.T) {
	for _, c := range []struct {
		terminal, journal bool
		flag              setting
		want              string
	}{
		{false, false, setting{}, formatJSON},
		{true, false, setting{}, formatPretty},
		{true, true, setting{}, formatJournal},
		{true, false, setting{"log_format", "json", "log-format"}, formatJSON},
		{true, false, setting{"log_file", "orla.log", "log-file"}, formatJSON},
	} {
		l := &loader{path: os.DevNull, terminal: c.terminal, journal: c.journal}
		if c.flag.key != "" {
			l.flags = append(l.flags, c.flag)
		}
		cfg, err := l.load()
		if err != nil {
			t.Fatal(err)
		}
		if cfg.LogFormat != c.want {
			t.Errorf("%+v: %s, want %s", c, cfg.LogFormat, c.want)
		}
	}
}
