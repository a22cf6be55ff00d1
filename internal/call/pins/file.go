package pins

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

const (
	// format is the version of the files.
	format = 1
	// maxFile bounds what is read of a file, in bytes. What is written is less: the lists of a provider are bounded.
	maxFile = 128 << 20
	// maxKept bounds a definition that is kept for the difference, in bytes, and maxKeptAll all of a provider's.
	maxKept, maxKeptAll = 64 << 10, 8 << 20
	// maxAbsent bounds the accepted definitions that are kept of what a provider does not list any more. Without
	// its definition, what comes back is new.
	maxAbsent = 1000
	// lockWait is how long another process may take to write.
	lockWait = 5 * time.Second
	// lockSuffix is the end of the name of the file that is locked for a provider's: nobody waits for the pins of another
	// one, which may be many (SPEC N2).
	lockSuffix = ".lock"
)

// file is what is kept of one provider.
type file struct {
	Format   int             `json:"format"`
	Provider string          `json:"provider"`
	Source   string          `json:"source"` // the manifest, absolute
	Tools    map[string]kept `json:"tools"`  // by the provider's own names
	Prompts  map[string]kept `json:"prompts"`
}

// kept is an accepted definition.
type kept struct {
	Digest     Digest          `json:"digest"`
	Accepted   time.Time       `json:"accepted"`
	By         string          `json:"by"`
	Definition json.RawMessage `json:"definition,omitempty"` // canonical; absent if it is too large
}

func (f *file) of(kind Kind) map[string]kept {
	if kind == Tool {
		return f.Tools
	}
	return f.Prompts
}

// each calls do with all that is kept.
func (f *file) each(do func(item, kept)) {
	for _, kind := range []Kind{Tool, Prompt} {
		for name, k := range f.of(kind) {
			do(item{kind, name}, k)
		}
	}
}

// stamp tells versions of a file apart.
type stamp struct{ info os.FileInfo }

func (s stamp) same(now os.FileInfo) bool {
	return s.info != nil && os.SameFile(s.info, now) && s.info.Size() == now.Size() && s.info.ModTime().Equal(now.ModTime())
}

// readFile reads a file of pins, and checks it. The error of one that does not exist is fs.ErrNotExist.
func readFile(path string) (*file, error) {
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0) // opening a FIFO does not wait
	switch {
	case errors.Is(err, syscall.ELOOP):
		return nil, errors.New("it is a link, which is not followed")
	case err != nil:
		return nil, err
	}
	defer func() { _ = in.Close() }() // only read
	info, err := in.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	return decodeFile(in)
}

// decodeFile reads what encode has returned, and checks it.
func decodeFile(in io.Reader) (*file, error) {
	raw, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(raw) > maxFile:
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	f := new(file)
	if err := json.Unmarshal(raw, f); err != nil {
		return nil, err
	}
	if f.Format != format {
		return nil, fmt.Errorf("it has the format %d, and this version of Orla knows %d", f.Format, format)
	}
	var wrong error
	f.each(func(i item, k kept) {
		switch {
		case k.Digest == Digest{}:
			wrong = fmt.Errorf("the %s %.100q has no digest", i.kind, i.name)
		case k.Definition != nil && Digest(sha256.Sum256(k.Definition)) != k.Digest:
			wrong = fmt.Errorf("the %s %.100q has the digest of another definition", i.kind, i.name)
		}
	})
	return f, wrong
}

// encode returns the content of the file. listed are what the provider lists now: the rest is bounded.
func (f *file) encode(listed map[item]*listedItem) ([]byte, error) {
	f.Format = format
	f.bound(listed)
	return rawjson.Line(f) // definitions stay the bytes that their digests are of
}

// bound drops the oldest of what is not listed any more, and definitions beyond maxKeptAll, those of what is not
// listed first.
func (f *file) bound(listed map[item]*listedItem) {
	type entry struct {
		item
		kept
		absent bool
	}
	var all []entry
	f.each(func(i item, k kept) {
		_, is := listed[i]
		all = append(all, entry{i, k, !is})
	})
	slices.SortFunc(all, func(a, b entry) int {
		if a.absent != b.absent {
			if a.absent {
				return 1
			}
			return -1
		}
		return cmp.Or(b.Accepted.Compare(a.Accepted), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
	})
	size, absent := 0, 0
	for _, e := range all {
		if e.absent {
			if absent++; absent > maxAbsent {
				delete(f.of(e.kind), e.name)
				continue
			}
		}
		if size += len(e.Definition); size > maxKeptAll {
			e.Definition = nil
			f.of(e.kind)[e.name] = e.kept
		}
	}
}

// change reads the file of a provider, changes it and writes it, while no other process does. replace says that
// what cannot be read is replaced. It returns what the file says now.
func (p *Provider) change(replace bool, edit func(*file)) (*file, error) {
	if p.store.common != nil {
		return p.changeCommon(replace, edit)
	}
	if p.store.dir == "" {
		return nil, errors.New("there is no state_dir to keep it in")
	}
	unlock, err := lock(strings.TrimSuffix(p.path, ".json") + lockSuffix)
	if err != nil {
		return nil, err
	}
	defer unlock()
	f, err := readFile(p.path)
	if errors.Is(err, fs.ErrNotExist) || err != nil && replace {
		f, err = &file{}, nil
	}
	if err != nil {
		return nil, err
	}
	p.edit(f, edit)
	raw, err := f.encode(p.listed)
	if err == nil {
		err = wholefile.WriteSynced(p.path, raw)
	}
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(p.path)
	if err != nil {
		return nil, err
	}
	p.read = stamp{info}
	return f, nil
}

// edit changes a file.
func (p *Provider) edit(f *file, edit func(*file)) {
	f.Provider, f.Source = p.name, p.source
	if f.Tools == nil {
		f.Tools = map[string]kept{}
	}
	if f.Prompts == nil {
		f.Prompts = map[string]kept{}
	}
	edit(f)
}

// lock locks a file against other processes until unlock is called. It makes the file and its folder.
func lock(path string) (unlock func(), _ error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	const again = 10 * time.Millisecond
	for deadline := time.Now().Add(lockWait); ; <-time.After(again) {
		unlock, err := tryLock(path)
		if err == nil {
			return unlock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) || time.Now().After(deadline) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
}

// tryLock is lock without waiting: the error of a file that another process has locked, or has removed meanwhile, is EWOULDBLOCK.
func tryLock(path string) (unlock func(), _ error) {
	f, err := regularfile.OpenLock(path)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		var mine, there os.FileInfo
		if mine, err = f.Stat(); err == nil {
			if there, err = os.Lstat(path); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(mine, there) {
				err = syscall.EWOULDBLOCK // see forget
			}
		}
	}
	if err != nil {
		_ = f.Close() // it was only to be locked
		return nil, err
	}
	return func() { _ = f.Close() }, nil // which unlocks it
}
