package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
)

// lockWait is how long a process waits for another that has the lock: one that stops, or a short-lived
// "orla call".
const lockWait = 5 * time.Second

var errLocked = errors.New("another process has it")

// lock locks a file against other processes until unlock is called. It makes the file and its folder.
func lock(path string, wait time.Duration) (unlock func(), _ error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := regularfile.OpenLock(path)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, wait); err != nil {
		_ = f.Close() // unused
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return func() { _ = f.Close() }, nil // which unlocks it
}

func lockFile(f *os.File, wait time.Duration) error {
	const pause = 20 * time.Millisecond
	for until := time.Now().Add(wait); ; {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return err
		case time.Now().After(until):
			return errLocked
		}
		<-time.After(pause)
	}
}

// sink is what lines are written to.
type sink interface {
	// write writes whole lines, and returns how many bytes it has written for good.
	write(lines []byte) (int, error)
	sync() error
	close() error
}

// logFile is an audit log in a file.
type logFile struct {
	*os.File
	info os.FileInfo
}

func (f *logFile) write(lines []byte) (int, error) { return f.Write(lines) }
func (f *logFile) sync() error                     { return f.Sync() }
func (f *logFile) close() error                    { return f.Close() }

// moved reports whether the file is not the one at a path any more.
func (f *logFile) moved(path string) bool {
	now, err := os.Stat(path)
	return err != nil || !os.SameFile(now, f.info)
}

// ending is how a file ends.
type ending struct {
	from     io.ReaderAt // the file
	size     int64
	last     []byte // the last whole line, without its line end; nil for none
	fragment []byte // what follows it
}

// maxFragment bounds what a write that was cut may leave, in bytes: it is more than is written at once.
const maxFragment = maxPending + maxLine

// openFile opens an audit log for appending, locks it, and reads how it ends.
func openFile(path string, wait time.Duration) (_ *logFile, _ ending, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, 0o600) // opening a FIFO does not wait
	if err != nil {
		return nil, ending{}, err
	}
	defer func() {
		if err != nil {
			_ = f.Close() // err is more useful
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, ending{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, ending{}, fmt.Errorf("%s is not a regular file", path)
	}
	if err := lockFile(f, wait); errors.Is(err, errLocked) {
		return nil, ending{}, fmt.Errorf("%s: another Orla writes this audit log; each Orla needs one of its own", path)
	} else if err != nil {
		return nil, ending{}, fmt.Errorf("lock %s: %w", path, err)
	}
	if info, err = f.Stat(); err != nil { // nobody else writes from here on
		return nil, ending{}, err
	}
	end, err := readEnding(f, info.Size())
	if err != nil {
		return nil, ending{}, fmt.Errorf("%s: %w", path, err)
	}
	return &logFile{f, info}, end, nil
}

// readEnding reads how a file of size bytes ends.
func readEnding(f io.ReaderAt, size int64) (ending, error) {
	end := ending{from: f, size: size}
	if size == 0 {
		return end, nil
	}
	var tail []byte
	at := -1
	for most := int64(2 * maxLine); at < 0; most = maxFragment + maxLine { // the usual end is short
		tail = make([]byte, min(size, most))
		if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
			return end, err
		}
		if at = bytes.LastIndexByte(tail, '\n'); at < 0 && (most > 2*maxLine || int64(len(tail)) == size) {
			break
		}
	}
	if at < 0 && int64(len(tail)) < size {
		return end, errors.New("it is not an audit log: it has no lines")
	}
	end.fragment = tail[at+1:]
	if at < 0 {
		return end, nil
	}
	end.last = tail[bytes.LastIndexByte(tail[:at], '\n')+1 : at]
	return end, nil
}

// link is a place in the chain: the number of a line, and its hash.
type link struct {
	seq  uint64
	hash hash
}

// linkOf returns the link that a line is.
func linkOf(line []byte) (link, error) {
	var l Line
	if err := json.Unmarshal(line, &l); err != nil || l.Seq == 0 || l.Event == "" {
		return link{}, errors.New("it is not a line of an audit log")
	}
	return link{l.Seq, sha256.Sum256(line)}, nil
}
