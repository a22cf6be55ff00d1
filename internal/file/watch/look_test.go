package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// SPEC S2: whoever ends a Watcher does not wait until it has looked at all that there is.
func TestALookEndsWithItsContext(t *testing.T) {
	const files, enough = 1000, 100
	root := t.TempDir()
	for i := range files {
		mustDo(t, os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o600))
	}
	for _, poll := range []bool{false, true} {
		for _, already := range []int{0, files, 2 * files} { // at the first look, and at those of Serve
			var end context.CancelFunc
			asked := 0
			w := Unread(root, Options{Poll: poll, Content: true, Ignore: func(string, bool) bool {
				if asked++; asked == already+enough {
					end()
				}
				return false
			}})
			ctx, cancel := context.WithCancel(t.Context())
			end = cancel
			if err := w.Serve(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("Serve returned %v, want context.Canceled", err)
			}
			cancel()
			if most := already + enough + 1; asked > most {
				t.Errorf("polling: %v, %d paths were looked at, want %d", poll, asked, most)
			}
			if len(w.subs) > 0 {
				t.Errorf("polling: %v, %d folders are still watched", poll, len(w.subs))
			}
		}
	}
}

// E1: what came before the first look is not a change; what comes after it is one, also
// before Serve.
func TestTheFirstLookIsWhereChangesBegin(t *testing.T) {
	root := t.TempDir()
	save := func(name string) string {
		path := filepath.Join(root, name)
		mustDo(t, os.WriteFile(path, nil, 0o600))
		return path
	}
	w := Unread(root, Options{Content: true})
	save("before")
	w.Look(t.Context())
	after := save("after")
	stop := serving(t, w)
	defer stop()
	if c := nextChange(t, w); c.Path != after {
		t.Errorf("the first change is of %q, want %q", c.Path, after)
	}
}
