package discover

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// SPEC-TOOLS 8.3, SPEC S2: a reload reads only the files that have changed.
func TestT83AReloadReadsWhatHasChanged(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file("a.json", `[{"text": "kind: ToolPermission"}]`)
	file("b.yaml", "text: data\n")
	file("c.yaml", "text: an AgentRole\n")
	file("d.yaml", strings.Repeat("- text: an AgentRole "+strings.Repeat("words ", 80)+"\n", 2500)) // more than a manifest may have
	read, after := 0, time.Hour
	seen := &Seen{Now: func() time.Time {
		read++
		return time.Now().Add(after)
	}}
	search := func(reads, denying int) {
		t.Helper()
		read = 0
		denies := 0
		for _, p := range Tools(Options{ToolsDir: dir, Seen: seen}).Problems {
			if p.Denies {
				denies++
			}
		}
		if read != reads || denies != denying {
			t.Errorf("read %d files and denied for %d, want %d and %d", read, denies, reads, denying)
		}
	}
	search(4, 0)
	search(0, 0)
	file("b.yaml", "kind: AgentRole\n")
	search(1, 1)
	search(1, 1) // what matters is read again
	file("b.yaml", "text: data\n")
	if err := os.Rename(filepath.Join(dir, "b.yaml"), filepath.Join(dir, "a.json")); err != nil {
		t.Fatal(err)
	}
	search(1, 0)
	search(0, 0)
	after = -time.Hour // as if each file had just changed
	file("c.yaml", "text: data\n")
	search(1, 0)
	search(1, 0)
}

// SPEC S2: a search ends when it is stopped, also within a large file, and what was
// not searched may hold a governance document.
func TestS2ASearchEndsWhenItIsStopped(t *testing.T) {
	for name, text := range map[string]string{
		"a.json": "[" + strings.Repeat(" ", 8<<20) + "]",
		"a.yaml": "a: AgentRole\n" + strings.Repeat("- a\n", 1<<20-8),
		"b.yaml": strings.Repeat("- just a text\n", (4<<20)/14),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, other := range []string{name, "z.json", "zz/z.yaml"} {
				at := filepath.Join(dir, other)
				if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			asked, most, read := 0, 20, 0
			seen := &Seen{Now: func() time.Time {
				read++
				return time.Now()
			}}
			found := Tools(Options{ToolsDir: dir, Seen: seen, Stopped: func() error {
				if asked++; asked > most {
					return context.Canceled
				}
				return nil
			}})
			denies := 0
			for _, p := range found.Problems {
				if p.Denies {
					denies++
				}
			}
			if denies == 0 || asked > most+20 || read > 1 {
				t.Errorf("asked %d times, read %d files: %v", asked, read, found.Problems)
			}
		})
	}
}
