package packages

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/manifest/keys"
)

const (
	// secretFile has the Secret of a package, beside its versions. It is in no digest and no lock.
	secretFile = "secret.yaml"
	// ignoreSecret is the line of a .gitignore that keeps git from taking it, and ignoreText all of one that Orla writes.
	ignoreSecret = "/" + secretFile + "\n"
	ignoreText   = ignoreSecret + "/" + ignoreName + "\n"
	// mostBeside bounds what is read of these files.
	mostBeside = 1 << 20
)

// namespace is where the Secrets of packages are, and no others.
var namespace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bnamespace: *"?` + keys.PackageSecrets + `\b`) })

// withoutSecret removes the Secret of a package, and what keeps git from taking it. A file of that name that Orla did not write
// stays.
func (s *Session) withoutSecret(name string) error {
	dir := filepath.Join(s.store.Dir, name)
	if there, err := isSecret(dir); !there || err != nil {
		return err
	}
	if text, err := regularfile.ReadOwn(filepath.Join(dir, ignoreName), mostBeside); err == nil && string(text) == ignoreText {
		_ = os.Remove(filepath.Join(dir, ignoreName)) // it does no harm
	}
	return os.Remove(filepath.Join(dir, secretFile))
}

// isSecret reports whether the Secret of a package is in its folder. The error says that something else has its name.
func isSecret(dir string) (bool, error) {
	file := filepath.Join(dir, secretFile)
	text, err := regularfile.ReadOwn(file, mostBeside)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err == nil && namespace().Match(text):
		return true, nil
	}
	return false, fmt.Errorf("%s is there and is not the Secret of an installed package: move it away first", file)
}

// secret writes the Secret of a package, which this user alone can read. One without a Secret keeps that of before,
// unless it is the first of its name: then what is there was another package's.
func (s *Session) secret(name string, text []byte, first bool) error {
	dir := filepath.Join(s.store.Dir, name)
	if len(text) == 0 && !first {
		return nil
	}
	there, err := isSecret(dir)
	switch {
	case err != nil:
		return err
	case len(text) > 0:
	case there:
		if err := s.step("remove the secret"); err != nil {
			return err
		}
		return s.withoutSecret(name)
	default:
		return nil
	}
	if err := s.step("write the secret"); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // a sandbox has another user
		return err
	}
	if err := ignored(filepath.Join(dir, ignoreName)); err != nil { // before the Secret: tools may be in version control
		return err
	}
	return wholefile.WriteSynced(filepath.Join(dir, secretFile), text)
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
