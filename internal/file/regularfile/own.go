package regularfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// ReadOwn returns the content of a file that Orla keeps, of most bytes at most. Like Open it neither blocks nor opens
// anything but a regular file, and it does not follow a link. Its error wraps that of package os.
func ReadOwn(file string, most int64) ([]byte, error) {
	f, err := openOwn(file, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case err != nil:
		return nil, err
	case int64(len(data)) > most:
		return nil, fmt.Errorf("%s: it has more than %d bytes", file, most)
	}
	return data, nil
}

// OpenLock opens a file that is only locked, and makes it. Like ReadOwn it neither blocks nor follows a link.
func OpenLock(file string) (*os.File, error) { return openOwn(file, os.O_RDWR|os.O_CREATE) }

func openOwn(file string, how int) (*os.File, error) {
	info, err := os.Lstat(file)
	switch {
	case err == nil && !info.Mode().IsRegular(): // opening some devices has effects
		return nil, fmt.Errorf("%s %w", file, notRegular(info))
	case err != nil && (!errors.Is(err, os.ErrNotExist) || how&os.O_CREATE == 0):
		return nil, err
	}
	f, err := os.OpenFile(file, how|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // something has replaced it
		err = fmt.Errorf("%s %w", file, notRegular(info))
	}
	if err != nil {
		_ = f.Close() // nothing was read
		return nil, err
	}
	return f, nil
}
