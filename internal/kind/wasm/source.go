package wasm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/wasm"
	"github.com/orla-project/orla/manifest"
)

const (
	// lasting is how long the module from an address is used before it is fetched again, if there is no
	// digest.
	lasting = 5 * time.Minute
	// settled is the age after which a changed file can no longer change without a new mtime.
	settled = 2 * time.Second
)

// source loads a tool's module and keeps it compiled. It checks the file at each call, so that the
// next call after a build uses the new module.
type source struct {
	from    manifest.WASM
	opts    Options
	loading chan struct{} // holds a value while a call loads the module

	mu   sync.Mutex // guards the fields that follow
	last loaded
}

// loaded is the result of a load; zero if there was none.
type loaded struct {
	module *wasm.Module
	err    error
	stamp  stamp     // of the file, if local
	had    bool      // the module was read or fetched, even if it is not valid
	at     time.Time // when the load ended
}

// stamp distinguishes two contents of a file.
type stamp struct {
	size    int64
	changed time.Time
	file    fs.FileInfo // its identity
}

func (s stamp) same(as stamp) bool {
	return s.file != nil && as.file != nil && s.size == as.size && s.changed.Equal(as.changed) && os.SameFile(s.file, as.file)
}

func newSource(from manifest.WASM, opts Options) *source {
	return &source{from: from, opts: opts, loading: make(chan struct{}, 1)}
}

// local reports whether the module is a file.
func (s *source) local() bool { return filepath.IsAbs(s.from.Module) }

// get returns the module for a call of an owner. Calls that need it at the same time share one load.
// The error is a
// *fault.Error.
func (s *source) get(ctx context.Context, owner turns.Owner) (*wasm.Module, error) {
	if l, ok := s.current(); ok {
		return l.module, l.err
	}
	select {
	case s.loading <- struct{}{}:
		defer func() { <-s.loading }()
	case <-ctx.Done():
		return nil, fault.From(context.Cause(ctx))
	}
	if l, ok := s.current(); ok { // another call has loaded it
		return l.module, l.err
	}
	l := s.load(ctx, owner)
	if s.keeps(l) {
		s.mu.Lock()
		s.last = l
		s.mu.Unlock()
	}
	return l.module, l.err
}

// drop forgets a module that was released.
func (s *source) drop(m *wasm.Module) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.module == m {
		s.last = loaded{}
	}
}

// current returns what is loaded, if it is still up to date.
func (s *source) current() (loaded, bool) {
	s.mu.Lock()
	l := s.last
	s.mu.Unlock()
	switch {
	case l.at.IsZero():
		return loaded{}, false
	case s.local():
		now, err := stampOf(s.from.Module)
		return l, err == nil && now.same(l.stamp)
	case s.from.Digest != "":
		return l, true
	}
	return l, time.Since(l.at) < lasting
}

// keeps reports whether the next call can use the result of a load too. An invalid module stays
// invalid until it changes, if changes can be noticed.
func (s *source) keeps(l loaded) bool {
	switch {
	case l.err == nil:
		return !s.local() || l.stamp.file != nil
	case fault.CodeOf(l.err) != fault.RuntimePolicyInvalid:
		return false
	case !s.local():
		return l.had // the address may serve a valid module soon
	}
	return l.stamp.file != nil && time.Since(l.stamp.changed) > settled
}

// load reads or fetches the module, and compiles it.
func (s *source) load(ctx context.Context, owner turns.Owner) loaded {
	l := loaded{at: time.Now()}
	read := func(ctx context.Context) (module []byte, err error) {
		if s.local() {
			module, l.stamp, err = s.read(ctx)
		} else {
			module, err = s.opts.Fetch(ctx, s.from.Module, s.from.Digest, s.from.PullSecret)
		}
		l.had = err == nil
		return module, err
	}
	l.module, l.err = s.opts.Runtime.Load(ctx, owner, s.origin(), read, wasm.Limits{
		MaxMemory: s.from.MaxMemory, Fuel: s.from.Fuel, WASI: s.from.WASI, Entrypoint: s.from.Entrypoint,
	})
	return l
}

// origin is the owner whose share of memory a module uses until it is compiled: all modules of a
// host together, or the file.
func (s *source) origin() turns.Owner {
	if s.local() {
		return turns.Owner{Session: s.from.Module}
	}
	_, host, _ := strings.Cut(s.from.Module, "://")
	if end := strings.IndexAny(host, "/?#"); end >= 0 {
		host = host[:end]
	}
	return turns.Owner{Session: strings.ToLower(host)}
}

// read reads the module's file when there is memory for it, and checks its digest. The stamp is zero
// if the file changed during the read.
func (s *source) read(ctx context.Context) ([]byte, stamp, error) {
	before, err := stampOf(s.from.Module)
	if err != nil {
		return nil, stamp{}, unreadable(err)
	}
	f, _, err := regularfile.Open(s.from.Module)
	if err != nil {
		return nil, stamp{}, unreadable(err)
	}
	defer func() { _ = f.Close() }() // it was only read
	if before.size > wasm.MaxModule {
		return nil, before, fault.New(fault.RuntimePolicyInvalid, "the module cannot be run: it has %d bytes; a module may have %d", before.size, wasm.MaxModule)
	}
	if err := turns.AccountOf(ctx).Need(ctx, before.size); err != nil {
		return nil, stamp{}, fault.From(err)
	}
	module := make([]byte, before.size)
	n, err := io.ReadFull(f, module)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // the file was cut during the read
		return nil, stamp{}, unreadable(err)
	}
	module = module[:n]
	after, err := stampOf(s.from.Module)
	if err != nil || !after.same(before) {
		before = stamp{}
	}
	if sum := sha256.Sum256(module); s.from.Digest != "" && s.from.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		return nil, before, fault.New(fault.RuntimePolicyInvalid, "the module is not the one that its digest names: it is sha256:%x", sum)
	}
	return module, before, nil
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{size: info.Size(), changed: info.ModTime(), file: info}, nil
}

// unreadable is the error for a module that cannot be read. It does not show the path, but says what
// to do.
func unreadable(err error) *fault.Error {
	why := "it cannot be read"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "its file is gone"
	case errors.Is(err, fs.ErrPermission):
		why = "Orla may not read its file"
	}
	return fault.Wrap(fault.RuntimePolicyInvalid, err, "the module cannot be run: %s", why)
}
