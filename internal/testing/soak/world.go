package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// patience bounds the start and the stop of Orla.
const patience = 60 * time.Second

// world is an Orla with its tools.
type world struct {
	dir, orla, self string
	cmd             *exec.Cmd
	url             string // of /mcp
	ended           chan error
}

func newWorld(dir, orla string) (*world, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	w := &world{dir: dir, orla: orla, self: self, ended: make(chan error, 1)}
	if err := os.MkdirAll(w.tools(), 0o755); err != nil {
		return nil, err
	}
	for i := range steadyCapsules {
		if err := writeCapsule(w.tools(), self, capsuleName(i), ""); err != nil {
			return nil, err
		}
	}
	if err := writeCapsule(w.tools(), self, "fragile", ""); err != nil {
		return nil, err
	}
	for i := range simpleTools {
		if err := writeSimple(w.tools(), self, simpleName(i)); err != nil {
			return nil, err
		}
	}
	return w, w.configure(0)
}

func (w *world) tools() string { return filepath.Join(w.dir, "tools") }

func (w *world) state() string { return filepath.Join(w.dir, "state") }

// configure writes the configuration; the version changes something that a reload applies.
func (w *world) configure(version int) error {
	text := fmt.Sprintf("tools_dir: %s\nstate_dir: %s\nlog_file: %s\nport: 0\nmax_output: %dMiB\nsession_timeout: 10s\n",
		w.tools(), w.state(), w.log(), 8+version%2)
	return os.WriteFile(w.config(), []byte(text), 0o644)
}

func (w *world) config() string { return filepath.Join(w.dir, "orla.yaml") }

func (w *world) log() string { return filepath.Join(w.dir, "orla.log") }

// start starts Orla and waits until it serves.
func (w *world) start(ctx context.Context) error {
	w.cmd = exec.Command(w.orla, "serve", "--config", w.config()) //nolint:noctx // it ends by stop
	w.cmd.Env = append(os.Environ(), "HOME="+w.dir)
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		return err
	}
	go func() { w.ended <- w.cmd.Wait() }()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if w.url = w.serving(); w.url != "" {
			return nil
		}
		select {
		case err := <-w.ended:
			return fmt.Errorf("Orla ended at its start: %w", err) //nolint:staticcheck // a name
		case <-ctx.Done():
			return errors.Join(errors.New("Orla does not serve"), w.stop()) //nolint:staticcheck // a name
		case <-tick.C:
		}
	}
}

// serving returns the address that the log has; "" if it has none yet.
func (w *world) serving() string {
	f, err := os.Open(w.log())
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct{ Msg, URL string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving" {
			return line.URL
		}
	}
	return ""
}

// stop ends Orla. It is an error if it does not end well.
func (w *world) stop() error {
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // it may be over
	select {
	case err := <-w.ended:
		return err
	case <-time.After(patience):
		return errors.Join(errors.New("Orla does not end on SIGTERM"), w.cmd.Process.Kill()) //nolint:staticcheck // a name
	}
}

// soak runs clients, events and samples until the time is up.
func (w *world) soak(ctx context.Context, o options) ([]sample, *counts, error) {
	c := &counts{calls: map[string]int{}, events: map[string]int{}}
	if err := newClient(w, c, -1).listed(ctx); err != nil {
		return nil, c, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.long)
	defer cancel()
	var all sync.WaitGroup
	for i := range o.clients {
		all.Go(func() { newClient(w, c, i).work(ctx) })
	}
	all.Go(func() { w.happen(ctx, c) })
	var samples []sample
	tick := time.NewTicker(o.every)
	defer tick.Stop()
	began := time.Now()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			s, err := w.measure()
			if err != nil {
				cancel()
				all.Wait()
				return nil, c, err
			}
			s.at = time.Since(began)
			s.p50, s.p99 = c.latencies()
			samples = append(samples, s)
		case err := <-w.ended:
			cancel()
			all.Wait()
			w.ended <- err
			return nil, c, fmt.Errorf("Orla ended: %w", err) //nolint:staticcheck // a name
		case <-ctx.Done():
		}
	}
	all.Wait()
	return samples, c, nil
}
