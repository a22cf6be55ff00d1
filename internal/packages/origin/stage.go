package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// stage is a folder that a tree is written into.
type stage struct {
	root *os.Root
	left int64           // bytes that may still be written
	made map[string]bool // folders
}

// file writes a file. It counts what it reads, whatever the source has said of the size.
func (s *stage) file(ctx context.Context, name string, exec bool, content io.Reader) error {
	if err := s.folder(parent(name)); err != nil {
		return err
	}
	mode := os.FileMode(0o644)
	if exec {
		mode = 0o755
	}
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(during{ctx, content}, s.left+1))
	if s.left -= n; err == nil && s.left < 0 {
		err = fmt.Errorf("%w: the files have more bytes than a package may have", ErrTooLarge)
	}
	if err == nil {
		err = f.Chmod(mode) // whatever the umask is
	}
	return errors.Join(err, f.Close())
}

func (s *stage) folder(name string) error {
	if name == "" || s.made[name] {
		return nil
	}
	s.made[name] = true
	return s.root.MkdirAll(name, 0o755)
}

// rest makes the folders without files, and then the links, so that nothing is written through one.
func (s *stage) rest(tree *checked, entries []entry) error {
	for i, e := range entries {
		if e.kind == folder {
			if err := s.folder(tree.names[i]); err != nil {
				return err
			}
		}
	}
	for name, target := range tree.targets {
		if err := s.folder(parent(name)); err != nil {
			return err
		}
		if err := s.root.Symlink(target, name); err != nil {
			return err
		}
	}
	return nil
}

// during is a reader that ends with ctx.
type during struct {
	ctx  context.Context
	from io.Reader
}

func (d during) Read(p []byte) (int, error) {
	if err := context.Cause(d.ctx); err != nil {
		return 0, err
	}
	return d.from.Read(p)
}
