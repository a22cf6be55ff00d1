package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	_ "crypto/sha512" // registers sha512, which OCI digests may use

	"github.com/opencontainers/go-digest"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	maxEntries = 1024     // number of addresses that are remembered
	maxEntry   = 16 << 10 // bytes of an entry
)

// cache keeps blobs by their digests, and what addresses had. A blob that does not match its digest
// is ignored. Several processes may share a folder: files are renamed into place when complete, and
// a missing file is only a cache miss.
//
//	DIR/blobs/sha256/HEX   the blob with this digest
//	DIR/places/HEX         an entry
type cache struct {
	dir  string
	max  int64
	log  *slog.Logger
	make func() error // makes the folders, once; it fails if another user owns them
}

// entry is what is remembered about an address.
type entry struct {
	Digest       digest.Digest `json:"digest"` // of a module, or of a manifest
	ETag         string        `json:"etag,omitempty"`
	LastModified string        `json:"last_modified,omitempty"`
	Looked       time.Time     `json:"looked"`
}

// fresh reports whether the address of e still counts as unchanged.
func (e entry) fresh() bool {
	age := time.Since(e.Looked)
	return e.Digest != "" && age >= 0 && age < lastingFor // if the clock was set back, nothing is fresh
}

func newCache(dir string, max int64, log *slog.Logger) *cache {
	c := &cache{dir: dir, max: max, log: log}
	c.make = sync.OnceValue(func() error {
		for _, sub := range []string{"", "blobs", "places"} {
			if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
				return err
			}
			if err := own(filepath.Join(dir, sub)); err != nil {
				return err
			}
		}
		return nil
	})
	return c
}

// own makes sure that nobody else can read or write a folder, which must belong to this user.
func own(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(of.Uid) != os.Geteuid() {
		return fmt.Errorf("%s must be a folder of this user", dir)
	}
	return os.Chmod(dir, 0o700)
}

// blob returns the blob with digest d, if it is kept and has at most max bytes.
func (c *cache) blob(ctx context.Context, d digest.Digest, max int64) ([]byte, bool) {
	if c.dir == "" || d.Validate() != nil || c.make() != nil {
		return nil, false
	}
	path := c.blobPath(d)
	data, err := read(path, max, func(size int64) error { return turns.AccountOf(ctx).Need(ctx, size) })
	switch {
	case ctx.Err() != nil:
		return nil, false
	case err != nil:
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("kept module cannot be read", "path", path, "err", err)
		}
		return nil, false
	case d.Algorithm().FromBytes(data) != d:
		c.log.Warn("kept module is damaged, and is fetched again", "path", path)
		_ = os.Remove(path) // if that fails, the next write replaces it
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // if that fails, it is removed too early
	return data, true
}

// has reports whether there is a file for digest d.
func (c *cache) has(d digest.Digest) bool {
	if c.dir == "" || d.Validate() != nil || c.make() != nil {
		return false
	}
	_, err := os.Stat(c.blobPath(d))
	return err == nil
}

// putBlob keeps data, whose digest is d.
func (c *cache) putBlob(d digest.Digest, data []byte) {
	if c.dir == "" || d.Validate() != nil || int64(len(data)) > c.max {
		return
	}
	c.write(c.blobPath(d), data)
	c.prune("blobs/*/*", func(_ int, size int64) bool { return size <= c.max })
}

// entry returns what is remembered about an address; zero if nothing is.
func (c *cache) entry(k key) entry {
	var e entry
	if c.dir == "" || c.make() != nil { // entries of another user are not trusted
		return e
	}
	data, err := read(c.entryPath(k), maxEntry, nil)
	if err != nil || json.Unmarshal(data, &e) != nil || e.Digest.Validate() != nil {
		return entry{}
	}
	return e
}

// putEntry stores e for an address.
func (c *cache) putEntry(k key, e entry) {
	data, err := json.Marshal(e)
	if c.dir == "" || err != nil || len(data) > maxEntry {
		return
	}
	c.write(c.entryPath(k), data)
	c.prune("places/*", func(count int, _ int64) bool { return count <= maxEntries })
}

// blobPath returns the file of a digest. d is valid, so it contains no path separators.
func (c *cache) blobPath(d digest.Digest) string {
	return filepath.Join(c.dir, "blobs", d.Algorithm().String(), d.Encoded())
}

// entryPath returns the file of an address. The name is a hash, since the query of an address may
// contain a secret.
func (c *cache) entryPath(k key) string {
	sum := sha256.Sum256([]byte(k.address + "\x00" + k.pull.String()))
	return filepath.Join(c.dir, "places", hex.EncodeToString(sum[:]))
}

// read returns the content of a file, if that is at most max bytes. If need is not nil, it reserves
// memory by need first.
func read(path string, max int64, need func(size int64) error) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO does not wait
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	case info.Size() > max:
		return nil, errors.New("it is over the limit")
	}
	if need != nil {
		if err := need(info.Size()); err != nil {
			return nil, err
		}
	}
	data := make([]byte, info.Size())
	_, err = io.ReadFull(f, data)
	return data, err
}

// write writes a file atomically, or logs why it failed.
func (c *cache) write(path string, data []byte) {
	if err := c.tryWrite(path, data); err != nil {
		c.log.Warn("module is not kept", "path", path, "err", err)
	}
}

func (c *cache) tryWrite(path string, data []byte) error {
	if err := c.make(); err != nil {
		return err
	}
	return wholefile.Write(path, data)
}

// prune removes the least recently used files that match pattern, until the rest fits.
func (c *cache) prune(pattern string, fits func(count int, size int64) bool) {
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	var total int64
	names, _ := fs.Glob(os.DirFS(c.dir), pattern) // the pattern is valid
	for _, name := range names {
		path := filepath.Join(c.dir, name)
		info, err := os.Lstat(path)
		switch {
		case err != nil: // it is gone
		case strings.HasPrefix(info.Name(), wholefile.Prefix): // being written, or left by a process that was killed
			if wholefile.Abandoned(info) {
				_ = os.Remove(path) // another process may have removed it
			}
		default:
			files = append(files, file{path, info.Size(), info.ModTime()})
			total += info.Size()
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	for n, oldest := range files {
		if fits(len(files)-n, total) {
			return
		}
		_ = os.Remove(oldest.path) // another process may have removed it
		total -= oldest.size
	}
}
