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

	_ "crypto/sha512" // digests of this kind are OCI's, too

	"github.com/opencontainers/go-digest"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	maxEntries = 1024     // addresses that are remembered
	maxEntry   = 16 << 10 // bytes of what is remembered of one
)

// cache keeps blobs by their digests, and what addresses had. A blob that is not
// what its digest says is none. Several processes may share a folder: files are
// put in their place complete, and what is gone is only missing.
//
//	DIR/blobs/sha256/HEX   what has this digest
//	DIR/places/HEX         an entry
type cache struct {
	dir  string
	max  int64
	log  *slog.Logger
	make func() error // makes the folders, once, and fails where they are somebody else's
}

// entry is what is remembered of an address.
type entry struct {
	Digest       digest.Digest `json:"digest"` // of what it had: a module, or a manifest
	ETag         string        `json:"etag,omitempty"`
	LastModified string        `json:"last_modified,omitempty"`
	Looked       time.Time     `json:"looked"`
}

// fresh reports whether an address that had e is taken to have it still.
func (e entry) fresh() bool {
	age := time.Since(e.Looked)
	return e.Digest != "" && age >= 0 && age < lastingFor // a clock that was set back makes nothing last
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

// own makes a folder that may have been there one that nobody else may read or write
// to, if it is this user's.
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

// blob returns what has digest d, if it is kept and has max bytes at most.
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
		_ = os.Remove(path) // else the next one writes over it
		return nil, false
	}
	now := time.Now()
	_ = os.Chtimes(path, now, now) // else it is thrown away earlier than it should
	return data, true
}

// has reports whether there is a file of what has digest d.
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

// entry returns what is remembered of an address; a zero entry if nothing is.
func (c *cache) entry(k key) entry {
	var e entry
	if c.dir == "" || c.make() != nil { // what others wrote would say what an address has
		return e
	}
	data, err := read(c.entryPath(k), maxEntry, nil)
	if err != nil || json.Unmarshal(data, &e) != nil || e.Digest.Validate() != nil {
		return entry{}
	}
	return e
}

// putEntry remembers e of an address.
func (c *cache) putEntry(k key, e entry) {
	data, err := json.Marshal(e)
	if c.dir == "" || err != nil || len(data) > maxEntry {
		return
	}
	c.write(c.entryPath(k), data)
	c.prune("places/*", func(count int, _ int64) bool { return count <= maxEntries })
}

// blobPath is a digest's file. d is valid, and so holds nothing that leads elsewhere.
func (c *cache) blobPath(d digest.Digest) string {
	return filepath.Join(c.dir, "blobs", d.Algorithm().String(), d.Encoded())
}

// entryPath is an address's file. Its name tells nothing of the address, which may
// have a secret in its query.
func (c *cache) entryPath(k key) string {
	sum := sha256.Sum256([]byte(k.address + "\x00" + k.pull.String()))
	return filepath.Join(c.dir, "places", hex.EncodeToString(sum[:]))
}

// read returns what a file holds, if that is max bytes at most. It waits for room by need, if that
// is not nil.
func read(path string, max int64, need func(size int64) error) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
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

// write puts a file in its place, or logs why it is not kept.
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

// prune removes the files that were not used for longest, of those that match
// pattern, until what is left fits.
func (c *cache) prune(pattern string, fits func(count int, size int64) bool) {
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	var total int64
	names, _ := fs.Glob(os.DirFS(c.dir), pattern) // the pattern is a good one
	for _, name := range names {
		path := filepath.Join(c.dir, name)
		info, err := os.Lstat(path)
		switch {
		case err != nil: // gone
		case strings.HasPrefix(info.Name(), wholefile.Prefix): // being written, or left by a process that ended
			if wholefile.Abandoned(info) {
				_ = os.Remove(path) // another may have
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
		_ = os.Remove(oldest.path) // another may have
		total -= oldest.size
	}
}
