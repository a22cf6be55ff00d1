package envfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/file/yamldoc"
)

// The bounds of the environment of an installed package, whose index may send anything (SPEC R6, M4): bytes, if the operator says
// no others, and files, folders and links.
const (
	DefaultBytes = 2 << 30
	Files        = 200_000
)

// betweenLooks is the pause between two looks at the size. A look that takes long is followed by a longer pause.
const betweenLooks = 200 * time.Millisecond

// Bound is how large the folders of an installer may become.
type Bound struct {
	Bytes int64
	Files int
	Part  string // what is kept in the end
	// Scratch is the home of the installer; "" for none. It has its caches, which may be as large again.
	Scratch string
	Log     *slog.Logger
}

// Run runs fn with a context that ends when the folders become too large.
func (b Bound) Run(ctx context.Context, fn func(context.Context) ([]byte, error)) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer recovered.To(b.Log, "look at the size of an environment", func(p any) { cancel(fmt.Errorf("panic: %v", p)) })
		for pause := betweenLooks; ; {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
			began := time.Now()
			if err := b.Check(); err != nil {
				cancel(err)
			}
			pause = max(betweenLooks, 5*time.Since(began))
		}
	}()
	out, err := fn(ctx)
	cancel(nil)
	<-done
	return out, err
}

// Check returns an error if the folders are too large.
func (b Bound) Check() error {
	bytes, files := b.Bytes, b.Files
	err := within(b.Part, &bytes, &files)
	if err == nil && b.Scratch != "" {
		bytes, files = bytes+b.Bytes, files+b.Files
		err = within(b.Scratch, &bytes, &files)
	}
	if err != nil {
		return fmt.Errorf("what it needs has over %s or %d files, which is the most for an installed package; max_environment in orla.yaml sets the bytes", yamldoc.Size(b.Bytes), b.Files)
	}
	return nil
}

var errFull = errors.New("it is too large")

// within subtracts the bytes and files of a folder, as far as they can be read, and returns an error if there are more.
func within(dir string, bytes *int64, files *int) error {
	return filepath.WalkDir(dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // installers remove what they have made; at the end it can all be read
		}
		*files--
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() {
			*bytes -= info.Size()
		}
		if *bytes < 0 || *files < 0 {
			return errFull
		}
		return nil
	})
}
