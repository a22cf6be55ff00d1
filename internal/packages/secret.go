package packages

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest/keys"
)

const (
	// secretFile has the Secret of a package, beside its versions. It is in no digest and no lock.
	secretFile = "secret.yaml"
	// secretHead begins each of those files: one without it is the user's own, and is neither replaced nor removed.
	secretHead = "# Written by orla install, which changes and removes this file.\n"
	// ignoreSecret is the line of a .gitignore that keeps git from taking it, and ignoreText all of one that Orla writes.
	ignoreSecret = "/" + secretFile + "\n"
	ignoreText   = ignoreSecret + "/" + ignoreName + "\n"
	// mostBeside bounds what is read of these files.
	mostBeside = 1 << 20
)

// beside is the Secret in the folder of a package. The zero value is none.
type beside struct {
	text   []byte // nil for none
	name   string
	values map[string]string
}

// secretText is the Secret with a name.
func secretText(name string, values map[string]string) []byte {
	scalar := func(text string) []byte {
		out, _ := json.Marshal(text) // a string can always be encoded
		return out
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%sapiVersion: orloj.dev/v1\nkind: Secret\nmetadata:\n  name: %s\n  namespace: %s\nspec:\n  stringData:\n", secretHead, scalar(name), scalar(keys.PackageSecrets))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		fmt.Fprintf(&out, "    %s: %s\n", scalar(key), scalar(values[key]))
	}
	return out.Bytes()
}

// readSecret reads the Secret in the folder of a package. The error says that something else has its name.
func readSecret(dir string) (b beside, err error) {
	file := filepath.Join(dir, secretFile)
	text, err := regularfile.ReadOwn(file, mostBeside)
	if errors.Is(err, fs.ErrNotExist) {
		return beside{}, nil
	}
	if err != nil || !bytes.HasPrefix(text, []byte(secretHead)) {
		return beside{}, fmt.Errorf("%s is there, and orla install did not write it: move it away first", file)
	}
	var d struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"metadata"`
		Spec struct {
			StringData map[string]string `json:"stringData"`
		} `json:"spec"`
	}
	b.text = text
	if _, err := yamldoc.Decode(file, text, &d, yamldoc.Options{Hide: true}); err == nil { // otherwise somebody has changed it, and it is replaced as a whole
		b.name, b.values = d.Metadata.Name, d.Spec.StringData
	}
	return b, nil
}

// writeSecret makes the Secret in the folder of a package what it is to be: text, or nothing.
func (s *Session) writeSecret(name string, text []byte) error {
	dir := filepath.Join(s.store.Dir, name)
	if text == nil {
		if text, err := regularfile.ReadOwn(filepath.Join(dir, ignoreName), mostBeside); err == nil && string(text) == ignoreText {
			_ = os.Remove(filepath.Join(dir, ignoreName)) // it does no harm
		}
		if err := os.Remove(filepath.Join(dir, secretFile)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // a sandbox has another user
		return err
	}
	if err := ignored(filepath.Join(dir, ignoreName)); err != nil { // before the Secret: tools may be in version control
		return err
	}
	return wholefile.WriteSynced(filepath.Join(dir, secretFile), text)
}

// withoutSecret removes the Secret of a package, and what keeps git from taking it. A file of that name that Orla did not write
// stays.
func (s *Session) withoutSecret(name string) error {
	if b, err := readSecret(filepath.Join(s.store.Dir, name)); b.text == nil {
		return err
	}
	return s.writeSecret(name, nil)
}

// secret writes the Secret of a package, which this user alone can read, and remembers the one of before. The values of before
// stay while a version is installed: the older ones may ask for them (SPEC M8). With the first version of a name goes what is
// there: it was another package's.
func (c *Candidate) secret(ctx context.Context) error {
	s, first := c.session, c.Before == nil
	if len(c.Secret) == 0 && !first {
		return nil
	}
	dir := filepath.Join(s.store.Dir, c.Entry.Name)
	before, err := readSecret(dir)
	if err != nil {
		return err
	}
	name := c.Entry.Source.SecretName(c.Entry.Name)
	values := map[string]string{}
	if !first && before.name == name {
		maps.Copy(values, before.values)
	}
	maps.Copy(values, c.Secret)
	var text []byte
	if len(c.Secret) > 0 {
		text = secretText(name, values)
	}
	if bytes.Equal(text, before.text) {
		return nil
	}
	step := "write the secret"
	if text == nil {
		step = "remove the secret"
	} else if err := s.store.Git.NotTracked(ctx, s.store.Dir, filepath.Join(c.Entry.Name, secretFile)); err != nil {
		return err
	}
	if err := s.step(step); err != nil {
		return err
	}
	c.undo.secret, c.undo.before, c.undo.after = true, before.text, text
	return s.writeSecret(c.Entry.Name, text)
}

// secretBack writes the Secret of before, unless another orla or the user has changed it since.
func (c *Candidate) secretBack() error {
	if !c.undo.secret {
		return nil
	}
	there, err := readSecret(filepath.Join(c.session.store.Dir, c.Entry.Name))
	if err != nil || !bytes.Equal(there.text, c.undo.after) {
		return nil //nolint:nilerr // it is the user's now
	}
	if err := c.session.writeSecret(c.Entry.Name, c.undo.before); err != nil {
		return fmt.Errorf("its secrets of before could not be restored: %w", err)
	}
	c.undo.secret = false
	return nil
}

// ignored makes a .gitignore name the Secret, in its last line if the user has written others.
func ignored(file string) error {
	text, err := regularfile.ReadOwn(file, mostBeside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.WriteFile(file, []byte(ignoreText), 0o644) //nolint:gosec // git reads it
	case err != nil:
		return fmt.Errorf("%s has to keep git from taking a Secret, and cannot be read: %w", file, err)
	case string(text) == ignoreText || bytes.HasSuffix(text, []byte("\n"+ignoreSecret)):
		return nil
	}
	line := ignoreSecret
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		line = "\n" + line
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}
