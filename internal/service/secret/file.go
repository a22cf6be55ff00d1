package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxFile is more than any key or certificate needs.
const maxFile = 64 << 10

// candidate is a file that may hold a secret.
type candidate struct {
	what string // as messages call the folder
	dir  string
	file string // below dir
}

// String names the file for messages.
func (c candidate) String() string { return c.what + " (" + filepath.Join(c.dir, c.file) + ")" }

// candidates are the files that may hold a secret, the first wins.
func candidates(ref Ref, dir, credentials string) []candidate {
	var at []candidate
	add := func(what, dir string, file ...string) {
		if dir != "" {
			at = append(at, candidate{what, dir, filepath.Join(file...)})
		}
	}
	if ref.Namespace != DefaultNamespace {
		// With a folder for each secret, always: the file a/b is the key b of
		// the secret a, and never the secret b of the namespace a.
		add("secrets_dir", dir, ref.Namespace, ref.Name, ref.Key)
		return at
	}
	if ref.Key == DefaultKey {
		add("secrets_dir", dir, ref.Name)
	}
	add("secrets_dir", dir, ref.Name, ref.Key)
	if ref.Key == DefaultKey {
		add("the credentials", credentials, ref.Name)
	} else {
		add("the credentials", credentials, ref.Name+"."+ref.Key)
	}
	return at
}

// read returns what the file holds, less one line break at its end, and nil if
// there is no such file. A folder in its place is no file. Symbolic links are
// followed inside the folder and never out of it.
func (c candidate) read() (*Value, error) {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return nil, c.unless(err)
	}
	defer func() { _ = root.Close() }()                                // it was only read
	f, err := root.OpenFile(c.file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO does not wait
	if err != nil {
		return nil, c.unless(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, c.unless(err)
	case info.IsDir():
		return nil, nil
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", c)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, c.unless(err)
	case len(data) > maxFile:
		return nil, fmt.Errorf("%s is over %d KiB", c, maxFile>>10)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	value := NewValue(text)
	return &value, nil
}

// unless says why a file cannot be read, unless it is not there.
func (c candidate) unless(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	return fmt.Errorf("%s: %w", c, err)
}
