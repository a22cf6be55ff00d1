package deps

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/deps/envlock"
	"github.com/orla-project/orla/internal/file/wholefile"
)

const (
	// usersFolder has a file for each folder of tools: its path, and the digests that its tools need. What one
	// of them names is not removed by an Orla that serves another folder.
	usersFolder = "users"
	// afterUse is how long an environment stays after it was last needed: processes that are being
	// replaced still use it.
	afterUse = 30 * time.Second
)

// Keep removes the environments that no tool needs. tools are those of the folder that this process serves, and
// key is a file name for that folder. Builds for other tools are ended. It removes more later, as processes may still
// use what they have needed up to now.
func (s *Store) Keep(folder, key string, tools []*Tool) {
	s.mu.Lock()
	clear(s.wanted)
	s.mu.Unlock()
	keep := map[string]bool{}
	for _, t := range tools {
		need, err := s.Detect(t.source)
		if err == nil && !need.IsZero() {
			keep[need.Digest] = true
			s.mu.Lock()
			s.wanted[t.source.Script] = need.Digest
			s.mu.Unlock()
		}
		t.mu.Lock()
		if !t.in.IsZero() {
			keep[t.in.Digest] = true
		}
		t.mu.Unlock()
	}
	names := slices.Sorted(maps.Keys(keep))
	file := filepath.Join(s.opts.Dir, usersFolder, key)
	text := strings.Join(append([]string{folder}, names...), "\n") + "\n"
	if len(names) == 0 && !exists(s.opts.Dir) {
		return // there is nothing, and nothing is needed
	}
	if old, err := os.ReadFile(file); err != nil || string(old) != text {
		if err := wholefile.Write(file, []byte(text)); err != nil {
			s.opts.Log.Warn("the environments of tools are not collected", "err", err)
			return
		}
	}
	s.mu.Lock()
	for digest := range s.builds {
		s.cancelUnwantedLocked(digest)
	}
	again := false
	for digest := range s.held {
		if !keep[digest] && s.unheld[digest].IsZero() {
			s.unheld[digest] = time.Now()
			again = true
		}
	}
	s.mu.Unlock()
	s.sweep()
	if again {
		s.running.Go(func() {
			defer recovered.To(s.opts.Log, "remove environments", func(any) {}) // the next reload does it
			select {
			case <-time.After(afterUse):
				s.sweep()
			case <-s.ctx.Done():
			}
		})
	}
}

// Background runs work in a goroutine. ctx ends when the Store is closed, which waits for the work.
func (s *Store) Background(work func(ctx context.Context)) {
	if s.ctx.Err() == nil {
		s.running.Go(func() {
			defer recovered.To(s.opts.Log, "install dependencies", func(any) {}) // the next call does it
			work(s.ctx)
		})
	}
}

// sweep removes the environments that no folder of tools needs, and that nobody uses.
func (s *Store) sweep() {
	entries, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		return // there is nothing
	}
	used := s.used()
	digests := map[string]bool{} // whether builds have left something
	for _, entry := range entries {
		if digest := digestIn(entry.Name()); isDigest(digest) {
			digests[digest] = digests[digest] || isRest(entry.Name())
		}
	}
	for digest, rest := range digests {
		if used[digest] && !rest {
			continue
		}
		s.mu.Lock()
		f, since := s.held[digest], s.unheld[digest]
		if f != nil && !used[digest] && !since.IsZero() && time.Since(since) >= afterUse {
			_ = f.Close() // it was only locked
			delete(s.held, digest)
			delete(s.unheld, digest)
			f = nil
		}
		s.mu.Unlock()
		if f == nil {
			s.remove(digest, used[digest])
		}
	}
}

// used returns the digests that the folders of tools need. A folder that is gone needs nothing.
func (s *Store) used() map[string]bool {
	used := map[string]bool{}
	dir := filepath.Join(s.opts.Dir, usersFolder)
	entries, _ := os.ReadDir(dir) // none if it is missing
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), wholefile.Prefix) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			continue
		}
		folder, list, _ := strings.Cut(string(text), "\n")
		if _, err := os.Stat(folder); isMissing(err) {
			_ = os.Remove(filepath.Join(dir, entry.Name())) // another process may have removed it
			continue
		}
		for digest := range strings.Lines(list) {
			used[strings.TrimSpace(digest)] = true
		}
	}
	return used
}

// remove removes an environment and what is left of builds, unless another process builds or uses it. With
// partOnly the environment stays.
func (s *Store) remove(digest string, partOnly bool) {
	lock, err := envlock.Try(s.lockFile(digest), true)
	if err != nil {
		return // it is in use
	}
	defer func() { _ = lock.Close() }() // it was only locked
	at := s.place(digest)
	err = s.removeParts(digest)
	if !partOnly {
		if renamed := os.Rename(at, at+partSuffix); renamed == nil { // it is never there in part
			err = errors.Join(err, os.RemoveAll(at+partSuffix))
			s.opts.Log.Info("an environment that no tool needs was removed", "digest", digest)
		}
		err = errors.Join(err, os.Remove(s.lockFile(digest)))
	}
	if err != nil {
		s.opts.Log.Warn("an environment could not be removed", "digest", digest, "err", err)
	}
}

// isDigest reports whether a name is that of an environment.
func isDigest(name string) bool {
	return len(name) == 32 && strings.Trim(name, "0123456789abcdef") == ""
}
