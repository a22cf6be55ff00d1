package lockfile

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/file/wholefile"
)

const head = "# What is installed, which version serves, and what was granted. Written by orla install:\n" +
	"# keep it in version control, and look at what changes in it.\n"

// Text returns the file. The same packages give the same text.
func (l *Lock) Text() []byte {
	l = l.Clone()
	l.sort()
	w := writer{}
	w.WriteString(head + "version: 1\n")
	if len(l.Packages) > 0 {
		w.WriteString("packages:\n")
	}
	for _, p := range l.Packages {
		w.WriteString("  - name: " + quoted(p.Name) + "\n")
		w.pair("    version", p.Version)
		if p.Serves {
			w.WriteString("    serves: true\n")
		}
		w.WriteString("    source:\n")
		w.pair("      kind", string(p.Source.Kind))
		w.pair("      url", p.Source.URL)
		w.pair("      registry", p.Source.Registry)
		w.pair("      server", p.Source.Server)
		if made := p.Source.Made; made != nil && (len(made.Answers)+len(made.Secrets) > 0 || made.At != "") {
			w.WriteString("      made:\n")
			w.table("        answers", made.Answers)
			w.list("        secrets", made.Secrets)
			w.pair("        at", made.At)
		}
		w.pair("    tag", p.Tag)
		w.pair("    commit", p.Commit)
		w.pair("    digest", p.Digest)
		w.pair("    image", p.Image)
		w.list("    permissions", p.Permissions)
		w.list("    unenforced", p.Unenforced)
		w.pair("    signer", p.Signer)
		if p.Unsigned {
			w.WriteString("    unsigned: true\n")
		}
		w.table("    dependencies", p.Dependencies)
		w.table("    tools", p.Tools)
	}
	return []byte(w.String())
}

// writer writes YAML.
type writer struct{ strings.Builder }

// pair writes a key, unless it has no value.
func (w *writer) pair(key, value string) {
	if value != "" {
		w.WriteString(key + ": " + quoted(value) + "\n")
	}
}

func (w *writer) list(key string, values []string) {
	if len(values) == 0 {
		return
	}
	w.WriteString(key + ":\n")
	for _, value := range slices.Sorted(slices.Values(values)) {
		w.WriteString(indentOf(key) + "  - " + quoted(value) + "\n")
	}
}

func (w *writer) table(key string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	w.WriteString(key + ":\n")
	for _, name := range slices.Sorted(maps.Keys(values)) {
		w.WriteString(indentOf(key) + "  " + quoted(name) + ": " + quoted(values[name]) + "\n")
	}
}

func indentOf(key string) string { return key[:len(key)-len(strings.TrimLeft(key, " "))] }

var plain = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z/][A-Za-z0-9_./+@=~-]*(:[A-Za-z0-9_./+@=~-]+)*|[0-9]+\.[0-9]+\.[0-9]+)$`)
})

// quoted returns a text as YAML reads it.
func quoted(text string) string {
	words := []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
	if plain().MatchString(text) && !slices.Contains(words, strings.ToLower(text)) {
		return text
	}
	raw, _ := json.Marshal(text) // a string can always be encoded
	return strings.ReplaceAll(string(raw), "\x7f", `\x7f`)
}

// Write replaces a lock atomically, and returns when it would survive a crash of the machine. Whoever writes has
// to hold the Guard of its folder.
func Write(file string, l *Lock) error {
	text := l.Text()
	if _, err := Parse(file, text); err != nil {
		return err // it could not be read again
	}
	file, err := followed(file)
	if err != nil {
		return err
	}
	next := filepath.Join(filepath.Dir(file), ".orla.lock.new")
	mode := os.FileMode(0o644)
	if info, err := os.Stat(file); err == nil {
		mode = info.Mode().Perm()
	}
	_ = os.Remove(next) // of a process that was killed
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		_ = os.Remove(next) // err is more useful
		return err
	}
	return wholefile.SyncNames(filepath.Dir(file))
}
