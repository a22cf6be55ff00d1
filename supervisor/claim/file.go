package claim

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

const (
	// maxFile bounds what is read back, in bytes. It is more than MaxKept, by which what is written is bounded.
	maxFile = 32 << 20
	// pause is how long what has changed may wait for more before it is written.
	pause = time.Second
)

// File keeps who offered something first, from one start of Orla to the next (SPEC N2): the
// first in the order of names would take it otherwise. It is a suture service.
type File struct {
	path    string
	claims  func() map[Claim][]string
	log     *slog.Logger
	changed chan struct{} // holds a token when there is something new
}

// NewFile returns what keeps claims in a file. What claims returns must not change.
func NewFile(path string, claims func() map[Claim][]string, log *slog.Logger) *File {
	return &File{path: path, claims: claims, log: log, changed: make(chan struct{}, 1)}
}

// content is the content of the file: the names of manifests, by what they offer.
type content map[Sort]map[string][]string

// Read returns what a file keeps; nothing where there is none. An error says that nobody knows who offered something first.
func Read(path string) (map[Claim][]string, error) {
	claims := map[Claim][]string{}
	var text content
	raw, err := regularfile.ReadOwn(path, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return claims, nil
	case err == nil:
		err = json.Unmarshal(raw, &text)
	}
	if err != nil {
		return claims, err
	}
	for sort, of := range text {
		for key, line := range of {
			if sort == Tool {
				key = rules.Folded(key)
			}
			if len(line) > 0 {
				claims[Claim{sort, key}] = line[:min(len(line), MaxLine)]
			}
		}
	}
	return claims, nil
}

// Note says that there is something new to keep. A nil File keeps nothing. It may be called from any goroutine.
func (f *File) Note() {
	if f == nil {
		return
	}
	select {
	case f.changed <- struct{}{}:
	default: // it will be looked at anyway
	}
}

// String names the service in logs.
func (*File) String() string { return "claims" }

// Serve writes what has changed until ctx ends, and what has changed by then.
func (f *File) Serve(ctx context.Context) error {
	for ctx.Err() == nil {
		select {
		case <-f.changed:
		case <-ctx.Done():
		}
		select {
		case <-time.After(pause):
			f.write()
		case <-ctx.Done():
			f.write()
		}
	}
	return ctx.Err()
}

func (f *File) write() {
	if err := wholefile.Write(f.path, f.text()); err != nil {
		f.log.Warn("cannot store for the next start which capsule was first to offer something", "path", f.path, "err", err)
	}
}

// text is the file as it is to be.
func (f *File) text() []byte {
	text := content{}
	for k, line := range Within(f.claims(), MaxKept) {
		if text[k.Sort] == nil {
			text[k.Sort] = map[string][]string{}
		}
		text[k.Sort][k.Key] = line
	}
	raw, err := rawjson.Line(text)
	if err != nil { // it is made of strings
		panic(err)
	}
	return raw
}
