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

// MaxValue bounds a value in bytes. It is larger than any key or certificate.
const MaxValue = 64 << 10

// candidate is a file that may contain a secret.
type candidate struct {
	what string // the name of the folder in messages
	dir  string
	file string // relative to dir
}

// String returns the name of the file for messages.
func (c candidate) String() string { return c.what + " (" + filepath.Join(c.dir, c.file) + ")" }

// candidates returns the files that may contain a secret. The first one that exists wins.
func candidates(ref Ref, dir, credentials string) []candidate {
	var at []candidate
	add := func(what, dir string, file ...string) {
		if dir != "" {
			at = append(at, candidate{what, dir, filepath.Join(file...)})
		}
	}
	if ref.Namespace != DefaultNamespace {
		// Each secret has its own folder: the file a/b is the key b of the secret a, and never the secret
		// b of the namespace a.
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

// read returns the content of the file without one line break at its end; nil if there is no such
// file or it is a folder. It follows symbolic links inside dir, and never out of it.
func (c candidate) read() (*Value, error) {
	root, err := os.OpenRoot(c.dir)
	if err != nil {
		return nil, c.unless(err)
	}
	defer func() { _ = root.Close() }()                                // it was only read
	f, err := root.OpenFile(c.file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO does not block
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
	data, err := io.ReadAll(io.LimitReader(f, MaxValue+1))
	switch {
	case err != nil:
		return nil, c.unless(err)
	case len(data) > MaxValue:
		return nil, fmt.Errorf("%s is over %d KiB", c, MaxValue>>10)
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	value := NewValue(text)
	return &value, nil
}

// unless returns why a file cannot be read; nil if it does not exist.
func (c candidate) unless(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if cause, ok := errors.AsType[*fs.PathError](err); ok {
		err = cause.Err
	}
	return fmt.Errorf("%s: %w", c, err)
}
