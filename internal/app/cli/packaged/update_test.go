package packaged

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/manifest"
)

// SPEC M8: calls wait while a new version starts, and its publisher chooses how long that may take: only up to a minute.
func TestM8PublishersDoNotChooseHowLongCallsWait(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{5 * time.Second: 20 * time.Second, 24 * time.Hour: 75 * time.Second} {
		var tool manifest.Tool
		tool.Runtime.StartupTimeout = timeout
		if got := patienceWith(tool); got != want {
			t.Errorf("with a startup timeout of %s, an update waits for %s, want %s", timeout, got, want)
		}
	}
}

// RFC 3 §7.1: what somebody types in place of a name or a URL is told apart.
func TestRFC3S7_1WordsOfAnInstall(t *testing.T) {
	for word, want := range map[string]struct{ url, name, ref string }{
		"notes":                         {name: "notes"},
		"notes@v1.0.0":                  {name: "notes", ref: "v1.0.0"},
		"io.github.ada/notes@1.0":       {name: "io.github.ada/notes", ref: "1.0"},
		"https://example.com/a@v1.0.0":  {url: "https://example.com/a", ref: "v1.0.0"},
		"git@example.com:ada/notes.git": {url: "git@example.com:ada/notes.git"},
		"github.com/ada/notes":          {},
		"notes@1.0.0":                   {},
	} {
		url, name, ref, err := parseWord(word)
		if url != want.url || name != want.name || ref != want.ref || (err != nil) != (want.url+want.name == "") {
			t.Errorf("%s: %q %q %q %v", word, url, name, ref, err)
		}
	}
}

// SPEC M8, R4: an update makes no folder for packages where only the orla.yaml of a repository, perhaps somebody else's, says.
func TestM8ARepositoryDoesNotChooseWhereAnUpdateWrites(t *testing.T) {
	project, home, used := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(used, "env"), 0o755); err != nil { //nolint:gosec // of a test
		t.Fatal(err)
	}
	if err := os.Symlink(home, filepath.Join(project, "link")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(project, "orla.yaml")
	for text, want := range map[string]bool{"": false, "state_dir: ./state\n": false, "state_dir: " + home + "/.ssh\n": true, "state_dir: ./link\n": true, "state_dir: " + used + "\n": false} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := (&config.Loader{Path: file, Home: home}).Load()
		if err != nil {
			t.Fatal(err)
		}
		if got := (&place{cfg: cfg}).othersState(); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
