package registry

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	kindFile   = "kind"
	maxAnswers = 200 // that are kept of one registry
	fetching   = "fetch-"
)

var digested = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9a-f]{32}$`) })

// cache is a folder of answers. What goes wrong with it costs a question, and no more.
type cache struct{ dir string }

// of returns the folder of one registry.
func (c cache) of(url string) cache { return cache{filepath.Join(c.dir, digest(url))} }

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// read returns a file with its age.
func (c cache) read(name string, most int64) (data []byte, age time.Duration, there bool) {
	f, info, err := regularfile.Open(filepath.Join(c.dir, name))
	if err != nil {
		return nil, 0, false
	}
	defer func() { _ = f.Close() }()
	if info.Size() > most {
		return nil, 0, false
	}
	data = make([]byte, info.Size())
	if n, err := f.ReadAt(data, 0); err != nil || n != len(data) {
		return nil, 0, len(data) == 0
	}
	return data, max(0, time.Since(info.ModTime())), true
}

func (c cache) write(name string, data []byte) error {
	c.prune()
	return wholefile.Write(filepath.Join(c.dir, name), data)
}

// prune removes the oldest answers if there are too many, and what was being written by processes that were killed.
func (c cache) prune() {
	wholefile.Sweep(c.dir)
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return
	}
	var old []fs.FileInfo
	for _, d := range list {
		info, err := d.Info()
		switch {
		case err != nil:
		case strings.HasPrefix(d.Name(), fetching) && time.Since(info.ModTime()) > time.Hour:
			_ = os.RemoveAll(filepath.Join(c.dir, d.Name()))
		case digested().MatchString(d.Name()):
			old = append(old, info)
		}
	}
	if len(old) < maxAnswers {
		return
	}
	slices.SortFunc(old, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range old[:len(old)-maxAnswers/2] {
		_ = os.Remove(filepath.Join(c.dir, info.Name()))
	}
}

// clear removes the folders of all registries, and nothing else that may be there.
func (c cache) clear() error {
	list, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, d := range list {
		if digested().MatchString(d.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(c.dir, d.Name())))
		}
	}
	return err
}
