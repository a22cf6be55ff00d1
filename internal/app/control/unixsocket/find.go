package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrNotRunning says that nobody listens on a socket, or that there is none.
var ErrNotRunning = errors.New("no Orla is running")

// dialTimeout bounds the wait for a socket whose Orla accepts nobody.
const dialTimeout = 2 * time.Second

// Dial connects to a socket.
func Dial(ctx context.Context, socket string) (net.Conn, error) {
	name, done, err := addressable(socket)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = ErrNotRunning
		}
		return nil, err
	}
	defer done()
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, "unix", name)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w on %s", ErrNotRunning, socket)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", socket, err)
	}
	return conn, nil
}

// Running is an Orla that answers.
type Running struct {
	Owner
	Socket string
}

// Find returns the Orla whose socket this is. The error is ErrNotRunning, or says why the Orla cannot be asked.
func Find(ctx context.Context, socket string) (*Running, error) {
	conn, err := Dial(ctx, socket)
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

// All returns the Orlas whose sockets are in any of dirs. It leaves out those that cannot be asked. If it finds no others, the
// error says of one of them that this user has no permission.
func All(ctx context.Context, dirs []string) (found []*Running, err error) {
	seen := map[string]bool{}
	for _, dir := range dirs {
		real, _ := filepath.EvalSymlinks(dir) // "" for one that is not there
		if real == "" || seen[real] {
			continue
		}
		seen[real] = true
		entries, readErr := os.ReadDir(real)
		if errors.Is(readErr, fs.ErrPermission) {
			err = readErr
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), socketSuffix) {
				continue
			}
			r, findErr := Find(ctx, filepath.Join(real, e.Name()))
			if findErr == nil {
				found = append(found, r)
			} else if errors.Is(findErr, fs.ErrPermission) {
				err = findErr
			}
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	return nil, err
}
