package wasm

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
)

const (
	// diskFormat is the version of the format of entries.
	diskFormat = "orla compiled module 1\n"
	// maxDisk bounds all entries together, in bytes.
	maxDisk = 1 << 30
	// nameSums is the file of an entry with the digests of its other files.
	nameSums = "sums"
)

// disk keeps compiled modules in a folder, one folder for each. They contain native code, and wazero
// checks almost nothing before it runs that. So each file is compared with its digest from when it
// was made. That detects damage, but not an attacker who replaces both; the mode of the folder
// protects against that. A nil disk keeps nothing.
type disk struct {
	dir    string
	log    *slog.Logger
	making sync.Map // channels of the entries that are being made; see lock
}

// openDisk returns the disk in dir; nil if dir is "" or cannot be trusted.
func openDisk(dir string, log *slog.Logger) *disk {
	if dir == "" {
		return nil
	}
	err := os.MkdirAll(dir, 0o700)
	var info fs.FileInfo
	if err == nil {
		info, err = os.Lstat(dir)
	}
	if err == nil && !ours(info) {
		err = fmt.Errorf("%s must be a folder of this user that nobody else may write to: its mode is %04o", dir, info.Mode().Perm())
	}
	if err != nil {
		log.Warn("compiled modules are not kept", "err", err)
		return nil
	}
	return &disk{dir: dir, log: log}
}

// entryOf returns the folder of a metered module. So a new version of the metering has new folders.
func (d *disk) entryOf(metered []byte) string {
	h := sha256.New()
	h.Write([]byte(diskFormat))
	h.Write(metered)
	return filepath.Join(d.dir, hex.EncodeToString(h.Sum(nil)))
}

// lock waits until no other goroutine makes the entry of a module. The caller may make it, and must
// then call release.
func (d *disk) lock(metered []byte) (release func()) {
	if d == nil {
		return func() {}
	}
	entry, mine := d.entryOf(metered), make(chan struct{})
	for {
		other, taken := d.making.LoadOrStore(entry, mine)
		if !taken {
			return func() {
				d.making.Delete(entry)
				close(mine)
			}
		}
		<-other.(chan struct{})
	}
}

// folder returns the folder for a module, with only verified files in it; "" if that is not
// possible.
func (d *disk) folder(metered []byte) string {
	if d == nil {
		return ""
	}
	entry := d.entryOf(metered)
	if err := verify(entry); err != nil {
		d.log.Warn("a compiled module has to be compiled again", "err", err)
		d.remove(metered)
	}
	if err := os.MkdirAll(entry, 0o700); err != nil {
		d.log.Warn("compiled modules are not kept", "err", err)
		return ""
	}
	now := time.Now()
	_ = os.Chtimes(entry, now, now) // only the order of removal depends on it
	return entry
}

// remove removes the entry of a module.
func (d *disk) remove(metered []byte) {
	if d == nil {
		return
	}
	if err := os.RemoveAll(d.entryOf(metered)); err != nil {
		d.log.Warn("a compiled module cannot be removed", "err", err)
	}
}

// keep writes the digests of a module's files, and makes room for them.
func (d *disk) keep(metered []byte) {
	if d == nil {
		return
	}
	entry := d.entryOf(metered)
	sums, err := sumsOf(entry)
	if err == nil && sums != "" {
		err = writeSums(entry, sums)
	}
	if err != nil {
		d.log.Warn("compiled modules are not kept", "err", err)
		d.remove(metered)
		return
	}
	d.prune(entry)
}

// verify compares the files of an entry with their digests. A missing entry is valid.
func verify(entry string) error {
	found, err := sumsOf(entry)
	if err != nil || found == "" {
		return err
	}
	said, err := regularfile.ReadOwn(filepath.Join(entry, nameSums), maxSums)
	if err != nil {
		return err
	}
	if found != string(said) {
		return fmt.Errorf("%s: its files are not those that were kept", entry)
	}
	return nil
}

// sumsOf lists the files of an entry with their digests, in order; "" if there are none.
func sumsOf(entry string) (string, error) {
	var list strings.Builder
	err := filepath.WalkDir(entry, func(path string, of fs.DirEntry, err error) error {
		name, _ := filepath.Rel(entry, path) // path is below entry
		switch {
		case err != nil && path == entry && os.IsNotExist(err):
			return fs.SkipAll
		case err != nil:
			return err
		case of.IsDir(), name == nameSums:
			return nil
		case !of.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file", path)
		}
		sum, err := sumOf(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sum, name)
		return nil
	})
	return list.String(), err
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, bufio.NewReaderSize(f, 1<<20)); err != nil {
		return nil, err
	}
	return h.Sum(nil), nil
}

// maxSums bounds the file of digests, in bytes.
const maxSums = 1 << 20

// writeSums replaces the digests of an entry, unless they are unchanged.
func writeSums(entry, sums string) error {
	path := filepath.Join(entry, nameSums)
	old, err := regularfile.ReadOwn(path, maxSums)
	if err == nil && bytes.Equal(old, []byte(sums)) {
		return nil
	}
	if err != nil && !os.IsNotExist(err) {
		_ = os.Remove(path) // a FIFO would wait for its reader
	}
	// A partly written file would not match, and the module would be compiled again.
	return os.WriteFile(path, []byte(sums), 0o600)
}

// prune removes the least recently used entries until the rest is at most maxDisk. It does not
// remove kept.
func (d *disk) prune(kept string) {
	type entry struct {
		path string
		used time.Time
		size int64
	}
	var entries []entry
	var total int64
	list, err := os.ReadDir(d.dir)
	if err != nil {
		d.log.Warn("compiled modules cannot be counted", "err", err)
		return
	}
	for _, of := range list {
		info, err := of.Info()
		if err != nil {
			continue // another Orla has removed it
		}
		e := entry{path: filepath.Join(d.dir, of.Name()), used: info.ModTime()}
		_ = filepath.WalkDir(e.path, func(_ string, of fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // another Orla has removed it
			}
			if info, err := of.Info(); err == nil {
				e.size += info.Size()
			}
			return nil
		})
		entries = append(entries, e)
		total += e.size
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	for _, e := range entries {
		if total <= maxDisk {
			return
		}
		if e.path == kept {
			continue
		}
		if err := os.RemoveAll(e.path); err != nil {
			d.log.Warn("a compiled module cannot be removed", "err", err)
		}
		total -= e.size
	}
}
