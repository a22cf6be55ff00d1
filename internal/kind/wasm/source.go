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
	// lasting is for how long what an address has is taken for what it has, where
	// no digest says so.
	lasting = 5 * time.Minute
	// settled is how old a change of a file is that no second one can look like.
	settled = 2 * time.Second
)

// source finds a tool's module, and keeps it compiled. A file is looked at for
// each call, so that a module that was built anew is the next call's.
type source struct {
	from    manifest.WASM
	opts    Options
	loading chan struct{} // holds one while a call loads

	mu   sync.Mutex // guards what follows
	last loaded
}

// loaded is what came of a load; the zero loaded of none.
type loaded struct {
	module *wasm.Module
	err    error
	stamp  stamp     // of a file
	had    bool      // the module was there, whatever came of it
	at     time.Time // when it was loaded
}

// stamp tells two contents of a file apart.
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

// get returns the module for a call of an owner, which is loaded once for all that ask meanwhile. The
// error is a *fault.Error.
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
	if l, ok := s.current(); ok { // somebody has, meanwhile
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

// drop forgets a module that was let go.
func (s *source) drop(m *wasm.Module) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.module == m {
		s.last = loaded{}
	}
}

// current returns what is loaded, if it is the module as it is now.
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

// keeps reports whether what came of a load holds for the next call too. A module
// that is no good stays so until it changes, where that can be told.
func (s *source) keeps(l loaded) bool {
	switch {
	case l.err == nil:
		return !s.local() || l.stamp.file != nil
	case fault.CodeOf(l.err) != fault.RuntimePolicyInvalid:
		return false
	case !s.local():
		return l.had // what an address refuses it may give in a moment
	}
	return l.stamp.file != nil && time.Since(l.stamp.changed) > settled
}

// load reads or fetches the module and compiles it.
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

// origin is what the module shares room with until it is compiled: all modules of its host. A
// file stands for itself.
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

// read reads the module's file when there is room for it, and checks its digest. The
// stamp is zero if the file changed meanwhile.
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
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) { // which it has when it was cut meanwhile
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

// unreadable is the fault of a module that cannot be read. Its path is Orla's to
// know: the reason says what people can do.
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
