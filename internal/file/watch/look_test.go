package watch

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
		for _, already := range []int{0, files, 2 * files} { // at the first look, at that of Serve, and at that of a poll
			if already > files && !poll {
				continue
			}
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

// SPEC S1: whoever watches one file of a folder, such as the lock of what is installed, looks at no other.
func TestS1WhatIsNotWatchedIsNotLookedAt(t *testing.T) {
	root := t.TempDir()
	for i := range 3 * fewAhead {
		mustDo(t, os.MkdirAll(filepath.Join(root, fmt.Sprintf("p%d", i), "more"), 0o700))
	}
	asked := map[string]bool{}
	w := Unread(root, Options{Paths: []string{"orla.lock", "p7/more"}, Content: true, Ignore: func(path string, _ bool) bool {
		asked[path] = true
		return false
	}})
	w.LookFirst(t.Context())
	w.Look(t.Context())
	if want := map[string]bool{"p7": true, "p7/more": true}; !maps.Equal(asked, want) {
		t.Errorf("%d paths were looked at, want %v", len(asked), want)
	}
	file := filepath.Join(root, "orla.lock")
	mustDo(t, os.WriteFile(file, nil, 0o600))
	stop := serving(t, w)
	defer stop()
	if c := nextChange(t, w); c.Path != file {
		t.Errorf("the change is of %q, want %q", c.Path, file)
	}
}

// SPEC L3, S2: the look before anything is served sees what any other sees, takes no rest, and ends with its context.
func TestTheLookBeforeAllElse(t *testing.T) {
	root := t.TempDir()
	for i := range 3 * fewAhead {
		dir := filepath.Join(root, fmt.Sprintf("p%d", i), "more")
		mustDo(t, os.MkdirAll(dir, 0o700))
		mustDo(t, os.WriteFile(filepath.Join(root, fmt.Sprintf("p%d", i), "file"), []byte{byte(i)}, 0o600))
		mustDo(t, os.Symlink("../file", filepath.Join(dir, "link")))
	}
	mustDo(t, os.MkdirAll(filepath.Join(root, "node_modules", "ignored"), 0o700))
	mustDo(t, os.WriteFile(filepath.Join(root, ".gitignore"), []byte("p7/\n"), 0o600))
	for _, opts := range []Options{{}, {Content: true}, {Gitignore: true}, {Paths: []string{"p3", "p4/more/link", "none"}}} {
		w := Unread(root, opts)
		w.Look(t.Context())
		quick := Unread(root, opts)
		quick.tree.seed = w.tree.seed
		quick.tree.looks = make(chan struct{}, 1)
		quick.LookFirst(t.Context())
		if !maps.EqualFunc(w.tree.seen, quick.tree.seen, func(a, b stamp) bool { return a.looks(b) && a.sum == b.sum }) {
			t.Errorf("%+v: %d paths are seen, want %d", opts, len(quick.tree.seen), len(w.tree.seen))
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	w := Unread(root, Options{Ignore: func(string, bool) bool {
		if asked++; asked == fewAhead {
			cancel()
		}
		return false
	}})
	w.LookFirst(ctx)
	if asked > fewAhead+1 || w.looked {
		t.Errorf("%d paths were looked at after the end", asked-fewAhead)
	}
}
