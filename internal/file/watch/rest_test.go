package watch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
)

// folderOf makes a folder with so many files.
func folderOf(t *testing.T, files int) string {
	root := t.TempDir()
	for i := range files {
		mustDo(t, os.WriteFile(filepath.Join(root, fmt.Sprint(i)), nil, 0o600))
	}
	return root
}

// SPEC S2: walks work for half of the time at most, one after the other or in turn, and a short one waits for
// none of the others' ends.
func TestS2WalksRest(t *testing.T) {
	const files, each = 200, time.Millisecond
	large, other, small := folderOf(t, files), folderOf(t, files), folderOf(t, 1)
	synctest.Test(t, func(t *testing.T) {
		looks := make(chan struct{}, 1)
		of := func(root string) *tree {
			return newTree(root, newScope(root, Options{Ignore: Ignored}), false, looks)
		}
		working := 0
		walk := func(tree *tree) time.Duration {
			began := time.Now()
			if err := tree.walk(t.Context(), ".", nil, func(string, stamp) {
				if working++; working > 1 {
					t.Error("two walks work at the same time")
				}
				time.Sleep(each)
				working--
			}); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if took := walk(of(small)); took != 2*each {
			t.Errorf("a short walk takes %s, want %s", took, 2*each)
		}
		if took, want := walk(of(large)), 2*files*each-2*slice; took < want {
			t.Errorf("a walk that works for %s takes %s, want %s at least", files*each, took, want)
		}
		again, began := of(small), time.Now()
		for range files {
			walk(again)
		}
		if took, want := time.Since(began), 2*2*files*each-2*slice; took < want {
			t.Errorf("walks that work for %s take %s, want %s at least", 2*files*each, took, want)
		}

		var long sync.WaitGroup
		for _, root := range []string{large, other} {
			long.Go(func() { walk(of(root)) })
		}
		time.Sleep(slice / 2)
		if took := walk(of(small)); took > 2*slice+3*each {
			t.Errorf("beside two long walks a short one takes %s", took)
		}
		long.Wait()

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(slice / 2)
			cancel()
		}()
		looks <- struct{}{}
		if err := of(small).walk(ctx, ".", nil, func(string, stamp) {}); err == nil {
			t.Error("a walk that is not wanted any more waits for others")
		}
	})
}

// SPEC S2: to compare one path with rules that take long is no reason not to rest, in a walk and for an event.
func TestS2RulesRest(t *testing.T) {
	root := folderOf(t, 1)
	mustDo(t, os.WriteFile(filepath.Join(root, gitignoreName), []byte(strings.Repeat("*x\n", often)), 0o600))
	w := Unread(root, Options{Gitignore: true})
	synctest.Test(t, func(t *testing.T) {
		w.tree.looks = make(chan struct{}, 1)
		w.tree.scope.ignore = func(string, bool) bool { // takes as long as slow rules
			time.Sleep(slice)
			return false
		}
		began := time.Now()
		mustDo(t, w.tree.walk(t.Context(), ".", nil, func(string, stamp) {}))
		if took, want := time.Since(began), 2*2*slice; took != want {
			t.Errorf("a walk over two files takes %s, want %s with its rests", took, want)
		}
		w.box.put(filepath.Join(root, "0"), fsnotify.Write)
		began = time.Now()
		w.drain(t.Context())
		if took, want := time.Since(began), 2*2*slice; took != want {
			t.Errorf("an event, whose path is compared twice, takes %s, want %s with its rests", took, want)
		}

		ctx, cancel := context.WithCancel(t.Context())
		w.tree.scope.ignore = func(path string, _ bool) bool {
			if path == "0" { // the last one
				cancel()
			}
			return false
		}
		if err := w.tree.walk(ctx, ".", nil, func(path string, _ stamp) {
			if path == "0" {
				t.Error("a path counts although its rules were not all compared")
			}
		}); err == nil {
			t.Error("a walk whose rules were not all compared has no error")
		}
	})
}
