package deps

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/orla-project/orla/internal/call/recovered"
)

// Tool is what one tool uses of a Store. A nil Tool needs nothing. Its methods may be called from any
// goroutine.
type Tool struct {
	store  *Store
	source Source

	mu     sync.Mutex // guards the fields that follow
	env    Env        // that its next process uses, if in is set
	in     Need       // of env; zero for none
	failed string     // what could not be installed, see attempt, since which nothing has changed
	making string     // the digest that Install builds or has built last
}

// Tool returns the use of a Store by one tool.
func (s *Store) Tool(source Source) *Tool { return &Tool{store: s, source: source} }

// Env returns the environment that the next process uses. It reports false if the tool needs none.
func (t *Tool) Env() (Env, bool) {
	if t == nil {
		return Env{}, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.env, !t.in.IsZero()
}

// Missing reports whether the environment that the files ask for now has to be built. It does not if the
// build has failed already, and the tool has an earlier environment; see Retry.
func (t *Tool) Missing() bool {
	if t == nil {
		return false
	}
	need, ready, err := t.look()
	if err == nil && (ready || need.IsZero()) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.in.IsZero() || t.failed != attempt(need, err)
}

// attempt names what is installed: the digest, or why the files cannot be read.
func attempt(need Need, err error) string {
	if err != nil {
		return err.Error()
	}
	return need.Digest
}

// look finds out what the files ask for now, and uses the environment if it is there.
func (t *Tool) look() (need Need, ready bool, err error) {
	if need, err = t.store.Detect(t.source); err != nil {
		return Need{}, false, err
	}
	var env Env
	if !need.IsZero() {
		if env, ready = t.store.Ready(need); !ready {
			return need, false, nil
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.env, t.in, t.failed = env, need, ""
	return need, ready, nil
}

// Changed reports whether the files ask for something else than what Install builds.
func (t *Tool) Changed() bool {
	need, err := t.store.Detect(t.source)
	t.mu.Lock()
	defer t.mu.Unlock()
	return err != nil || need.Digest != t.making
}

// Failed reports whether what the files ask for now could not be installed.
func (t *Tool) Failed() bool {
	need, err := t.store.Detect(t.source)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed != "" && t.failed == attempt(need, err)
}

// Needs reports whether t is the use by a tool that is described by a source.
func (t *Tool) Needs(source Source) bool { return reflect.DeepEqual(t.source, source) }

// Retry makes Missing report an environment again whose build has failed.
func (t *Tool) Retry() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failed = ""
}

// Install builds the environment that the files ask for now. If that fails, the tool keeps the one that it
// had. say is called with the lines of the installer, in the goroutine of the caller.
func (t *Tool) Install(ctx context.Context, say func(line string)) error {
	if t == nil {
		return nil
	}
	need, ready, err := t.look()
	if err == nil && (ready || need.IsZero()) {
		return nil
	}
	what, readable := attempt(need, err), err == nil
	if readable {
		t.mu.Lock()
		t.making = need.Digest
		t.mu.Unlock()
		_, err = t.store.Build(ctx, need, say)
	}
	switch {
	case err == nil:
		_, _, err = t.look() // the files may ask for another one by now
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, errReplaced):
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !readable && t.failed != what { // a build has logged its error
		t.store.opts.Log.Warn("dependencies were not installed", "file", t.source.Script, "err", err)
	}
	t.failed = what
	return &Error{err}
}

// Error says that what a tool needs could not be installed. Its text has the last lines of the installer, or what
// the declarations are: it is for the operator.
type Error struct{ err error }

func (e *Error) Error() string { return "dependencies could not be installed: " + e.err.Error() }

func (e *Error) Unwrap() error { return e.err }

// Public is the text for the callers of a tool that several have.
func (e *Error) Public() string {
	return "dependencies could not be installed; the last lines of the installer are in Orla's log"
}

// Ensure is for a tool that starts a process for each call: it builds a missing environment, unless the
// tool has an earlier one. Then that is used until the build is over.
func (t *Tool) Ensure(ctx context.Context, say func(line string)) error {
	if !t.Missing() {
		return nil
	}
	if _, ok := t.Env(); !ok {
		return t.Install(ctx, say)
	}
	need, ready, err := t.look()
	if err != nil {
		t.store.opts.Log.Warn("dependencies were not installed", "file", t.source.Script, "err", err)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.failed = attempt(need, err)
		return nil // the earlier environment is used
	}
	if ready || need.IsZero() {
		return nil
	}
	if !t.store.building(need) {
		t.store.Background(func(ctx context.Context) { _ = t.Install(ctx, func(string) {}) }) // build has logged it
	}
	return nil
}

// Installation is an install that goes on while the tool is used.
type Installation struct {
	Says <-chan string // the last line of the installer
	Done <-chan error  // receives one value when it is over
	stop context.CancelFunc
}

// Start begins to install. The caller must receive from Done or call Stop.
func (t *Tool) Start(ctx context.Context) *Installation {
	ctx, stop := context.WithCancel(ctx)
	says, done := make(chan string, 1), make(chan error, 1)
	go func() { // it ends by ctx, at the latest
		defer recovered.To(t.store.opts.Log, "install dependencies", func(p any) { done <- fmt.Errorf("panic: %v", p) })
		done <- t.Install(ctx, func(line string) {
			select {
			case <-says: // a newer one replaces it
			default:
			}
			says <- line
		})
		stop()
	}()
	return &Installation{Says: says, Done: done, stop: stop}
}

// Stop ends the waiting for the install, if it goes on. Others may wait for the same build.
func (i *Installation) Stop() {
	if i == nil || i.stop == nil {
		return
	}
	i.stop()
	<-i.Done //nolint:errcheck // nobody wants to know any more
}
