package deps

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/deps/envfiles"
	"github.com/orla-project/orla/internal/deps/envlock"
	"github.com/orla-project/orla/internal/file/wholefile"
	"github.com/orla-project/orla/internal/launch"
)

const (
	// BuildTimeout bounds a build.
	BuildTimeout = 15 * time.Minute
	// builders bounds the builds for the user's own tools at one time, and foreign those for installed packages. An
	// installed package has at most one of these, whose index may be as slow as its publisher wants.
	builders, foreign = 2, 4
)

// Begins is the message of the log when packages begin to be installed. There it has no key but those of the tool.
const Begins = "installing dependencies"

// Withdrawn is the message of the log about a version that was installed though its publisher has withdrawn it. It has the keys
// package, version and reason.
const Withdrawn = "an installed version was withdrawn by its publisher"

// Options configures a Store. All but Confine and MaxBytes are required.
type Options struct {
	Dir      string          // has the environments, absolute
	Launcher launch.Launcher // starts the installers
	Environ  []string        // of the installers
	Log      *slog.Logger
	// Confine starts the installers of a Source that is Confined, as ConfinedUser if Orla is root. If nil, no installer
	// is confined.
	Confine      Confine
	ConfinedUser int
	MaxBytes     int64 // of the environment of an installed package; 0 for envfiles.DefaultBytes
}

// Store has the environments of a machine's user. Its methods may be called from any goroutine.
type Store struct {
	Files // what is known of files

	opts    Options
	own     *turns.Queue // places for builds of the user's own tools
	foreign *turns.Queue // places for builds of installed packages, by package
	running sync.WaitGroup
	ctx     context.Context // of the builds
	end     context.CancelFunc

	mu     sync.Mutex           // guards the fields that follow
	builds map[string]*build    // by digest
	wanted map[string]string    // the digest that a script needs, by the script's path
	held   map[string]*os.File  // the locks of environments that are in use
	unheld map[string]time.Time // when Keep found that an environment is not in use any more
}

// build is one build, which all wait for that need its environment.
type build struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it is over
	err    error         // may be read after done

	mu      sync.Mutex    // guards the fields that follow
	line    string        // the last one of the installer
	changed chan struct{} // closed when there is a newer one
}

// NewStore returns a Store. The caller must Close it.
func NewStore(opts Options) *Store {
	ctx, end := context.WithCancel(context.Background())
	return &Store{
		opts: opts, own: turns.NewQueue(builders, 0), foreign: turns.NewCapped(foreign, 1), ctx: ctx, end: end,
		builds: map[string]*build{}, wanted: map[string]string{}, held: map[string]*os.File{}, unheld: map[string]time.Time{},
	}
}

// Close ends all builds, and returns when nothing of them is left.
func (s *Store) Close() {
	if s == nil {
		return
	}
	s.end()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for digest, f := range s.held {
		_ = f.Close() // it was only locked
		delete(s.held, digest)
	}
}

// place is the folder of an environment.
func (s *Store) place(digest string) string { return filepath.Join(s.opts.Dir, digest) }

// Ready returns the environment for a need, if it is there. From then on this process uses it: no
// other process removes it.
func (s *Store) Ready(need Need) (Env, bool) {
	env := need.env(s.place(need.Digest))
	if !env.whole() {
		return Env{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unheld, need.Digest)
	if s.held[need.Digest] != nil {
		return env, true
	}
	f, err := envlock.Try(s.lockFile(need.Digest), false)
	if err != nil {
		return Env{}, false // somebody is about to build or to remove it
	}
	if !env.whole() {
		_ = f.Close() // it was only locked
		return Env{}, false
	}
	s.held[need.Digest] = f
	return env, true
}

// errReplaced ends a build whose environment nobody needs any more.
var errReplaced = errors.New("the dependencies have changed, or the tool is gone")

// Build returns the environment for a need, which it builds if it is not there. A build goes on if ctx
// ends: then only the waiting does. say is called with the lines of the installer, in the goroutine of
// the caller.
func (s *Store) Build(ctx context.Context, need Need, say func(line string)) (Env, error) {
	if env, ok := s.Ready(need); ok {
		return env, nil
	}
	b := s.join(need) //nolint:contextcheck // a build outlives who waits for it
	for {
		b.mu.Lock()
		line, changed := b.line, b.changed
		b.mu.Unlock()
		if line != "" {
			say(line)
		}
		select {
		case <-changed:
		case <-b.done:
			if errors.Is(b.err, errReplaced) && s.wants(need) { // it was needed again when it was about to end
				b = s.join(need) //nolint:contextcheck // the same
				continue
			}
			if b.err != nil {
				return Env{}, b.err
			}
			if env, ok := s.awaitReady(ctx, need); ok {
				return env, nil
			}
			return Env{}, errors.New("the environment was removed right after it was made")
		case <-ctx.Done():
			return Env{}, context.Cause(ctx)
		}
	}
}

// awaitReady is Ready for an environment that has just been built: another Orla that waited for it has the lock for a
// moment.
func (s *Store) awaitReady(ctx context.Context, need Need) (env Env, ok bool) {
	for range lockTries {
		if env, ok = s.Ready(need); ok || !need.env(s.place(need.Digest)).whole() || !pace.Sleep(ctx, envlock.Pause) {
			break
		}
	}
	return env, ok
}

// wants reports whether a need is what its script needs now.
func (s *Store) wants(need Need) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[need.source.Script] == need.Digest
}

// building reports whether an environment is being built.
func (s *Store) building(need Need) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.builds[need.Digest] != nil
}

// join returns the build for a need, and begins it if there is none. It ends the build of what the
// same script needed before, if no other script needs that.
func (s *Store) join(need Need) *build {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.wanted[need.source.Script]
	s.wanted[need.source.Script] = need.Digest
	s.cancelUnwantedLocked(before)
	if b := s.builds[need.Digest]; b != nil {
		return b
	}
	ctx, cancel := context.WithCancel(s.ctx)
	b := &build{cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	s.builds[need.Digest] = b
	s.running.Go(func() {
		defer cancel()
		defer func() {
			s.mu.Lock()
			delete(s.builds, need.Digest)
			s.mu.Unlock()
			close(b.done)
		}()
		defer recovered.To(s.opts.Log, "build an environment", func(p any) { b.err = fmt.Errorf("panic: %v", p) })
		b.err = s.build(ctx, need, b.say)
	})
	return b
}

// cancelUnwantedLocked ends the build of a digest that no script needs.
func (s *Store) cancelUnwantedLocked(digest string) {
	b := s.builds[digest]
	if b == nil {
		return
	}
	for _, wanted := range s.wanted {
		if wanted == digest {
			return
		}
	}
	b.cancel()
}

// say publishes a line of the installer.
func (b *build) say(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.line = line
	close(b.changed)
	b.changed = make(chan struct{})
}

// build waits for a place, and builds an environment within BuildTimeout from then on.
func (s *Store) build(ctx context.Context, need Need, say func(line string)) error {
	began := time.Now()
	log := s.opts.Log.With("file", need.File, "digest", need.Digest)
	places, owner := s.own, turns.Owner{Session: need.source.Script}
	if need.source.Package != "" {
		name, _, _ := strings.Cut(need.source.Package, " ")
		places, owner = s.foreign, turns.Owner{Caller: name}
	}
	if !places.Try(owner) {
		say("waiting until other dependencies are installed")
		if err := places.Take(ctx, owner); err != nil {
			return s.ended(err, err)
		}
	}
	defer places.Give(owner)
	ctx, cancel := context.WithTimeoutCause(ctx, BuildTimeout, fmt.Errorf("it has not ended within %s", BuildTimeout))
	defer cancel()
	err := s.make(ctx, need, say, log)
	if err != nil {
		err = s.ended(err, context.Cause(ctx))
		log.Warn("dependencies were not installed", "err", err, "duration_ms", time.Since(began).Milliseconds())
		return err
	}
	return nil
}

// ended returns the error of a build that has failed: the reason for which it was ended, if it was.
func (s *Store) ended(err, cause error) error {
	switch {
	case cause == nil:
		return err
	case !errors.Is(cause, context.Canceled):
		return cause
	case s.ctx.Err() != nil:
		return errors.New("it was ended, as Orla stops")
	}
	return errReplaced
}

// make builds an environment next to its place, and renames it when it is whole.
func (s *Store) make(ctx context.Context, need Need, say func(line string), log *slog.Logger) (err error) {
	began := time.Now()
	if err := os.MkdirAll(s.opts.Dir, 0o700); err != nil {
		return err
	}
	s.mu.Lock()
	if f := s.held[need.Digest]; f != nil { // it is broken: its interpreter is gone
		_ = f.Close() // it was only locked
		delete(s.held, need.Digest)
	}
	s.mu.Unlock()
	at := s.place(need.Digest)
	lock, err := envlock.Await(ctx, s.lockFile(need.Digest), func() bool { return need.env(at).whole() }, say)
	if lock == nil {
		return err // nil if another Orla has built it
	}
	defer func() { err = errors.Join(err, s.hold(need.Digest, lock, err == nil)) }()
	if err := os.RemoveAll(at); err != nil {
		return err
	}
	clean := func() { // what an Orla that was killed has started may still write there
		if err := s.removeParts(need.Digest); err != nil {
			log.Debug("what a build has left could not be removed", "err", err)
		}
	}
	clean()
	defer clean() // also what could not be removed before
	part := at + "." + rand.Text()[:8] + partSuffix
	log.Info(Begins)
	if err := os.Mkdir(part, 0o700); err != nil {
		return err
	}
	i := installer{store: s, need: need, part: part, at: at, say: say, log: log}
	if err := i.install(ctx); err != nil {
		return err
	}
	if err := envfiles.OpenToRead(part); err != nil {
		return err
	}
	if err := publish(part, at); err != nil {
		return err
	}
	log.Info("dependencies are installed", "duration_ms", time.Since(began).Milliseconds())
	for _, w := range i.withdrawn {
		log.Warn(Withdrawn, "package", w.Package, "version", w.Version, "reason", w.Reason)
	}
	return nil
}

// hold keeps the lock of a build for those who use the environment, and otherwise ends it.
func (s *Store) hold(digest string, lock *os.File, built bool) error {
	if !built {
		return envlock.End(lock)
	}
	if err := envlock.Share(lock); err != nil {
		return errors.Join(err, lock.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[digest] = lock
	return nil
}

// lockSuffix ends the name of the file that is locked while an environment is built, used or removed.
const lockSuffix = ".lock"

func (s *Store) lockFile(digest string) string {
	return filepath.Join(s.opts.Dir, digest+lockSuffix)
}

// lockTries bounds the attempts to get a lock that others have for a moment alone.
const lockTries = 50

// partSuffix ends the name of a folder in which an environment is built. Each build has one of its own, which is called
// DIGEST.RANDOM.part: the processes of a build whose Orla was killed may still write into theirs.
const partSuffix = ".part"

// removeParts removes what builds of an environment have left. The caller has the lock of the environment.
func (s *Store) removeParts(digest string) (err error) {
	entries, err := os.ReadDir(s.opts.Dir)
	for _, entry := range entries {
		if name := entry.Name(); digestIn(name) == digest && isRest(name) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(s.opts.Dir, name)))
		}
	}
	return err
}

// isRest reports whether a name is that of what only a build has.
func isRest(name string) bool {
	return strings.HasSuffix(name, partSuffix) || strings.HasSuffix(name, scratchSuffix)
}

// digestIn returns the digest of the environment that a name in the folder of a Store belongs to.
func digestIn(name string) string {
	digest, _, _ := strings.Cut(name, ".")
	return digest
}

// publish makes a whole environment visible. It survives a crash of the machine from then on.
func publish(part, at string) error {
	if err := wholefile.SyncTree(part); err != nil {
		return err
	}
	if err := os.Rename(part, at); err != nil {
		return err
	}
	return wholefile.SyncNames(filepath.Dir(at))
}

func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
