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
)

const (
	// diskFormat changes with how entries are kept.
	diskFormat = "orla compiled module 1\n"
	// maxDisk bounds what is kept, together.
	maxDisk = 1 << 30
	// nameSums is the file of an entry that says what is in the others.
	nameSums = "sums"
)

// disk keeps compiled modules in a folder, each in one of its own. What is in
// there is native code that will be run, of which wazero checks next to nothing:
// so each file is compared with the digest that was written when it was made. That
// finds what broke, and not who forges both; against those stands the folder's mode.
// A nil disk keeps nothing.
type disk struct {
	dir    string
	log    *slog.Logger
	making sync.Map // channels by the entries that are being made; see lock
}

// openDisk returns the disk in dir, and nil if that is "" or cannot be trusted.
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

// entryOf names the folder of a module that is metered: what meters it is part of it.
func (d *disk) entryOf(metered []byte) string {
	h := sha256.New()
	h.Write([]byte(diskFormat))
	h.Write(metered)
	return filepath.Join(d.dir, hex.EncodeToString(h.Sum(nil)))
}

// lock waits until nobody makes the entry of a module, and has the caller do so
// until it calls release.
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

// folder returns the folder for a module, in which there is nothing that was not
// put there; "" if there can be none.
func (d *disk) folder(metered []byte) string {
	if d == nil {
		return ""
	}
	entry := d.entryOf(metered)
	if err := verify(entry); err != nil {
		d.log.Warn("a compiled module is made anew", "err", err)
		d.remove(metered)
	}
	if err := os.MkdirAll(entry, 0o700); err != nil {
		d.log.Warn("compiled modules are not kept", "err", err)
		return ""
	}
	now := time.Now()
	_ = os.Chtimes(entry, now, now) // which goes first depends on it, and nothing else
	return entry
}

// remove forgets a module.
func (d *disk) remove(metered []byte) {
	if d == nil {
		return
	}
	if err := os.RemoveAll(d.entryOf(metered)); err != nil {
		d.log.Warn("a compiled module cannot be removed", "err", err)
	}
}

// keep says what was put into a module's folder, and makes room for it.
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

// verify compares the files of an entry with their digests. No entry is as it should be.
func verify(entry string) error {
	found, err := sumsOf(entry)
	if err != nil || found == "" {
		return err
	}
	said, err := os.ReadFile(filepath.Join(entry, nameSums))
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
		name, _ := filepath.Rel(entry, path) // it is below
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

// writeSums replaces the sums of an entry, unless they are what they were.
func writeSums(entry, sums string) error {
	path := filepath.Join(entry, nameSums)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, []byte(sums)) {
		return nil
	}
	// Half of it would be no sums of these files, and the module made anew.
	return os.WriteFile(path, []byte(sums), 0o600)
}

// prune removes the entries that were used longest ago, until the rest is no more
// than maxDisk. kept stays.
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
				return nil //nolint:nilerr // the same
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
