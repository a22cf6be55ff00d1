package watch

import (
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
)

const (
	// maxRead is the largest file whose content is compared. Larger ones are compared by their metadata.
	maxRead = 16 << 20

	// maxReadAtOnce bounds the bytes of one look at a tree: files beyond it are compared by their
	// metadata, so that a data set next to a tool does not delay the start by minutes.
	maxReadAtOnce = 256 << 20

	// clockTick is the coarsest time stamp of a file system. A file that changed so recently may change
	// again and have the same time.
	clockTick = 2 * time.Second
)

// stamp is the state of a file or a folder when it was looked at. Of a file's permissions, only the
// executable bits count: the others do not change a tool.
type stamp struct {
	size  int64
	mtime int64 // in nanoseconds
	ino   uint64
	sum   uint64 // a hash of the content; 0 if it was not read
	mode  fs.FileMode
	fresh bool // the file may have changed since without a new mtime
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

// looks reports whether both have the same metadata.
func (s stamp) looks(o stamp) bool {
	return s.mode == o.mode && s.size == o.size && s.mtime == o.mtime && (s.mode.IsDir() || s.ino == o.ino)
}

// reader reads the contents for one look at a tree.
type reader struct {
	seed maphash.Seed
	left int64
	buf  []byte
}

// sum returns a hash of the content of the file at path with the stamp s; 0 if it is too large, not
// a file, or cannot be read.
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
	// Something else may have replaced the file, and a link may lead to a file of the kernel's: do not
	// wait for either.
	f, _, err := regularfile.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // nothing was written
	if r.buf == nil {
		r.buf = make([]byte, 32<<10)
	}
	n, err := io.CopyBuffer(h, io.LimitReader(f, maxRead+1), r.buf)
	r.left -= n
	return err == nil && n <= maxRead
}
