package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/testkit"
)

var eventually = testkit.Eventually

func mustDo(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// serving runs Watchers until the function that it returns is called.
func serving(t testing.TB, ws ...*Watcher) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	for _, w := range ws {
		go func() { done <- w.Serve(ctx) }()
	}
	return func() {
		cancel()
		for range ws {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("Serve returned %v, want context.Canceled", err)
			}
		}
	}
}

func nextChange(t *testing.T, w *Watcher) Change {
	t.Helper()
	select {
	case c := <-w.Changed():
		return c
	case <-time.After(time.Minute):
		t.Fatalf("%v: no Change within a minute", w)
		return Change{}
	}
}

// probe proves that dir is watched by w under the name at: a file made there is
// named by a Change. Changes still on their way are passed over.
func probe(t *testing.T, w *Watcher, dir, at string) {
	t.Helper()
	for i := range 1000 {
		name := fmt.Sprintf("probe-%d-%d", i, rand.Int())
		mustDo(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600))
		if c := nextChange(t, w); c.Path == filepath.Join(at, name) {
			return
		}
	}
	t.Fatalf("no Change names a file in %q", at)
}
