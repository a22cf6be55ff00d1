package control

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Running is an Orla that answers.
type Running struct {
	Owner
	Socket string
}

// Find returns the Orla whose socket this is, or an error: ErrNotRunning, or
// why it cannot be asked.
func Find(ctx context.Context, socket string) (*Running, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	_ = conn.Close() // nothing was sent
	r := &Running{Socket: socket}
	if f, err := os.OpenFile(lockOf(socket), os.O_RDONLY|syscall.O_NONBLOCK, 0); err == nil {
		r.Owner = readOwner(f)
		_ = f.Close() // it was only read
	}
	return r, nil
}

// All returns the Orlas whose sockets are in any of dirs. What cannot be asked
// is left out; if that is all there is, the error says of one why.
func All(ctx context.Context, dirs []string) (found []*Running, err error) {
	seen := map[string]bool{}
	for _, dir := range dirs {
		real, _ := filepath.EvalSymlinks(dir) // "" for one that is not there
		if real == "" || seen[real] {
			continue
		}
		seen[real] = true
		entries, readErr := os.ReadDir(real)
		if os.IsPermission(readErr) {
			err = readErr
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), socketSuffix) {
				continue
			}
			r, findErr := Find(ctx, filepath.Join(real, e.Name()))
			if findErr == nil {
				found = append(found, r)
			} else if os.IsPermission(findErr) {
				err = findErr
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, err
}
