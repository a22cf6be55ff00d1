package watch

import (
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

const (
	// A larger file counts by what it looks like from outside.
	maxRead = 16 << 20

	// So do the files after that many bytes of one look at a tree: it must not
	// take minutes to start because somebody keeps a data set beside a tool.
	maxReadAtOnce = 256 << 20

	// A file system's clock may tick as slowly as that. What changed so
	// recently may change again and bear the same time.
	clockTick = 2 * time.Second
)

// stamp is what a file or a folder was when it was looked at. Permissions of a
// file other than the executable bits are left out: they change nothing about
// a tool.
type stamp struct {
	size  int64
	mtime int64 // in nanoseconds
	ino   uint64
	sum   uint64 // of the content, never 0 if that was read
	mode  fs.FileMode
	fresh bool // what it was may have changed since, unseen
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{ino: inodeOf(info)}
	if info.IsDir() {
		s.mode = fs.ModeDir | info.Mode().Perm()
		return s
	}
	s.mode = info.Mode() & (fs.ModeType | 0o111)
	s.size, s.mtime = info.Size(), info.ModTime().UnixNano()
	s.fresh = time.Since(info.ModTime()).Abs() < clockTick
	return s
}

// looks reports whether both look the same from outside.
func (s stamp) looks(o stamp) bool {
	return s.mode == o.mode && s.size == o.size && s.mtime == o.mtime && (s.mode.IsDir() || s.ino == o.ino)
}

// reader reads contents for one look at a tree.
type reader struct {
	seed maphash.Seed
	left int64
	buf  []byte
}

// sum returns what stands for the content of the file at path, which looks
// like s, or 0 if that is too large, not a file's, or cannot be read.
func (r *reader) sum(path string, s stamp) uint64 {
	var h maphash.Hash
	h.SetSeed(r.seed)
	switch {
	case s.mode.Type() == fs.ModeSymlink:
		target, err := os.Readlink(path)
		if err != nil {
			return 0
		}
		h.WriteString(target) // never fails
	case !s.mode.IsRegular() || s.size > maxRead || s.size > r.left:
		return 0
	default:
		if !r.read(&h, path) {
			return 0
		}
	}
	return max(h.Sum64(), 1)
}

func (r *reader) read(h *maphash.Hash, path string) bool {
	// A pipe may have taken the file's place by now: do not wait for its writer.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // nothing was written
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	if r.buf == nil {
		r.buf = make([]byte, 32<<10)
	}
	n, err := io.CopyBuffer(h, io.LimitReader(f, maxRead+1), r.buf)
	r.left -= n
	return err == nil && n <= maxRead
}
