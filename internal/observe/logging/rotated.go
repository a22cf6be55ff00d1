package logging

import (
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/observe/history"
)

const (
	// maxRotated bounds the files that a log was rotated to, the newest of which are read.
	maxRotated = 64
	// maxUnpacked bounds what is read of a compressed one, in bytes.
	maxUnpacked = 1 << 30
)

// ending is what logrotate adds to a name: a number, or with dateext a date, and .gz if it compresses.
var ending = regexp.MustCompile(`^(\.[0-9]{1,5}|-[0-9]{8,10}(-[0-9]{1,10})?)(\.gz)?$`)

// logFiles are a log file that is open, and the files that it was rotated to, the oldest first.
type logFiles struct {
	now     *os.File
	size    int64
	rotated []rotatedFile
}

type rotatedFile struct {
	path string
	last time.Time // when it was written
}

// openLog opens a log file; nil if there is none. What is rotated later is not seen.
func openLog(path string) *logFiles {
	file, size := openRegular(path)
	if file == nil {
		return nil
	}
	l := &logFiles{now: file, size: size}
	info, err := file.Stat()
	entries, _ := os.ReadDir(filepath.Dir(path)) // without the right to list it there are none
	for _, e := range entries {
		after, begins := strings.CutPrefix(e.Name(), filepath.Base(path))
		if !begins || !ending.MatchString(after) || !e.Type().IsRegular() {
			continue
		}
		other, otherErr := e.Info()
		if err != nil || otherErr != nil || os.SameFile(info, other) { // it is rotated just now
			continue
		}
		l.rotated = append(l.rotated, rotatedFile{filepath.Join(filepath.Dir(path), e.Name()), other.ModTime()})
	}
	slices.SortFunc(l.rotated, func(a, b rotatedFile) int { return cmp.Or(a.last.Compare(b.last), cmp.Compare(b.path, a.path)) })
	l.rotated = l.rotated[max(0, len(l.rotated)-maxRotated):]
	return l
}

func (l *logFiles) close() { _ = l.now.Close() } // it was only read

// lines returns the lines of all files from a time on. Their JSON is good until the next line.
func (l *logFiles) lines(ctx context.Context, since time.Time) iter.Seq[history.Line] {
	return func(yield func(history.Line) bool) {
		for _, r := range l.rotated {
			if r.last.Before(since.Add(-disorder)) {
				continue
			}
			if !r.read(ctx, since, yield) {
				return
			}
		}
		linesFrom(ctx, l.now, l.size, since)(yield)
	}
}

// read passes on the lines of a file from a time on. It reports false if yield does. A file that is gone or cannot be read
// has none.
func (r rotatedFile) read(ctx context.Context, since time.Time, yield func(history.Line) bool) bool {
	file, size := openRegular(r.path)
	if file == nil {
		return true
	}
	defer func() { _ = file.Close() }() // it was only read
	if !strings.HasSuffix(r.path, ".gz") {
		more := true
		linesFrom(ctx, file, size, since)(func(line history.Line) bool {
			more = yield(line)
			return more
		})
		return more && ctx.Err() == nil
	}
	unpacked, err := gzip.NewReader(file)
	if err != nil { // it is not one, or logrotate is writing it
		return true
	}
	return read(ctx, io.LimitReader(unpacked, maxUnpacked), since, yield)
}
