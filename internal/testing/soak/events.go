package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// event is what happens to a running Orla again and again. An hour of it is a week of a busy folder of tools.
type event struct {
	name  string
	every time.Duration
	do    func(w *world, n int) error
}

var events = []event{
	{"save a file of a capsule", 1500 * time.Millisecond, func(w *world, n int) error {
		name := capsuleName(n % steadyCapsules)
		return os.WriteFile(filepath.Join(w.tools(), name, "helper.txt"), fmt.Appendf(nil, "%d\n", n), 0o644)
	}},
	{"change a manifest", 7 * time.Second, func(w *world, n int) error {
		return writeCapsule(w.tools(), w.self, capsuleName(n%steadyCapsules), fmt.Sprintf("  env: {N: %q}\n", fmt.Sprint(n%2)))
	}},
	{"save a simple tool", 3 * time.Second, func(w *world, n int) error {
		return writeSimple(w.tools(), w.self, simpleName(n%simpleTools))
	}},
	{"add or remove a capsule", 4 * time.Second, func(w *world, n int) error {
		name := fmt.Sprintf("passing%d", n/2%5)
		if n%2 == 1 {
			return os.RemoveAll(filepath.Join(w.tools(), name))
		}
		return writeCapsule(w.tools(), w.self, name, "")
	}},
	{"break a manifest, and repair it", 9 * time.Second, func(w *world, n int) error {
		path := filepath.Join(w.tools(), "broken.yaml")
		if n%2 == 1 {
			return os.Remove(path)
		}
		return os.WriteFile(path, []byte("kind: Tool\nmetadata: [\n"), 0o644)
	}},
	{"change the configuration", 5 * time.Second, func(w *world, n int) error {
		if err := w.configure(n); err != nil {
			return err
		}
		return w.cmd.Process.Signal(syscall.SIGHUP)
	}},
	{"rotate the log", 20 * time.Second, func(w *world, _ int) error {
		if err := os.Rename(w.log(), w.log()+".1"); err != nil {
			return err
		}
		return w.cmd.Process.Signal(syscall.SIGHUP)
	}},
}

// happen lets all events happen until ctx ends.
func (w *world) happen(ctx context.Context, c *counts) {
	done := make([]int, len(events))
	began := time.Now()
	for {
		next, at := 0, time.Duration(1<<62)
		for i, e := range events {
			if due := e.every * time.Duration(done[i]+1); due < at {
				next, at = i, due
			}
		}
		select {
		case <-time.After(time.Until(began.Add(at))):
		case <-ctx.Done():
			return
		}
		if err := events[next].do(w, done[next]); err != nil {
			c.fail(events[next].name, err)
		}
		c.happened(events[next].name)
		done[next]++
	}
}
