package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func reloadByHand(ctx context.Context, w *world, _ step) { w.operate(ctx, "reload") }

func look(ctx context.Context, w *world, s step) {
	args := [][]string{{"status", "--json"}, {"tools"}, {"logs", "plain", "-n", "20"}}
	w.operate(ctx, args[s.size%len(args)]...)
	w.life().signal(syscall.SIGUSR1)
}

// hupBurst sends a hundred SIGHUPs a second.
func hupBurst(ctx context.Context, w *world, s step) {
	for range int(s.long / (10 * time.Millisecond)) {
		w.life().signal(syscall.SIGHUP)
		wait(ctx, 10*time.Millisecond)
	}
}

func breakConfig(ctx context.Context, w *world, s step) {
	text := w.config()
	broken := []string{text + "no_such_key: 1\n", text[:len(text)/2] + ": [", "tools_dir: [\n"}
	w.writeConfig(broken[s.size%len(broken)])
	w.life().signal(syscall.SIGHUP)
	wait(ctx, s.long)
	w.writeConfig(text)
	w.life().signal(syscall.SIGHUP)
}

// fillDisk leaves no byte free where Orla keeps its state.
func fillDisk(ctx context.Context, w *world, s step) {
	defer w.book.begin("disk full")()
	path := filepath.Join(w.opts.dir, "state", "ballast")
	f, err := os.Create(path)
	if err != nil {
		return
	}
	for size := 1 << 16; size > 0; size /= 16 {
		piece := make([]byte, size)
		for {
			if _, err := f.Write(piece); err != nil {
				break
			}
		}
	}
	_ = f.Close() // the disk is full
	wait(ctx, s.long)
	_ = os.Remove(path) // it is there
}

// The limits of inotify of this user namespace.
const (
	maxWatches   = "/proc/sys/user/max_inotify_watches"
	maxInstances = "/proc/sys/user/max_inotify_instances"
)

func exhaustInotify(ctx context.Context, w *world, s step) {
	defer w.book.begin("inotify")()
	limits := []string{maxWatches, maxInstances}
	path := limits[s.size%len(limits)]
	if err := os.WriteFile(path, []byte("0"), 0o644); err != nil {
		w.book.violated("harness", "%v", err)
	}
	wait(ctx, s.long)
	_ = os.WriteFile(path, []byte(plenty), 0o644) // the calm does it again
}

const plenty = "65536"

// lowerDescriptors lets Orla open no file more, and then again.
func lowerDescriptors(ctx context.Context, w *world, s step) {
	defer w.book.begin("descriptors")()
	pid := w.life().pid()
	var was unix.Rlimit
	if unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was) != nil {
		return // Orla is over
	}
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // as above
	low := unix.Rlimit{Cur: uint64(len(open) + s.size%3), Max: was.Max}
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &low, nil) // as above
	wait(ctx, s.long)
	_ = unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil) // as above
}

// folderGone takes the whole tools folder away, by a move or by its removal, and
// makes it anew.
func folderGone(ctx context.Context, w *world, s step) {
	defer w.book.begin("folder gone")()
	dir, aside := w.folder.dir, filepath.Join(w.opts.dir, "tools-away")
	if s.size%2 == 0 {
		_ = os.Rename(dir, aside) // looked at below
		wait(ctx, s.long)
		if os.Rename(aside, dir) == nil {
			return
		}
	}
	_ = os.RemoveAll(dir) // a writer may be in between; the calm mends it
	wait(ctx, s.long)
	_ = os.RemoveAll(aside)
	_ = os.MkdirAll(dir, 0o755)
	w.saveAll()
}

// suspend stops Orla: to its timers, and to whoever waits for it, that looks like
// a machine that sleeps.
func suspend(ctx context.Context, w *world, s step) {
	defer w.book.begin("suspended")()
	l := w.life()
	l.signal(syscall.SIGSTOP)
	wait(ctx, s.long)
	l.signal(syscall.SIGCONT)
}

func comeAndGo(ctx context.Context, w *world, s step) {
	path := filepath.Join(w.folder.dir, fmt.Sprintf("comes-%d.sh", s.size%3))
	_ = w.folder.save(path, w.folder.program(sort{name: "comes", kind: aSimpleTool}, character{version: "c"})) // its folder may be away
	wait(ctx, s.long)
	_ = os.Remove(path) // as above
}

// killOrla ends Orla with SIGKILL: nothing of it may be left, and its successor
// finds everything in order (SPEC D3).
func killOrla(ctx context.Context, w *world, s step) {
	w.single.Lock()
	defer w.single.Unlock()
	defer w.book.begin("orla killed")()
	l := w.life()
	l.signal(syscall.SIGCONT)
	l.signal(syscall.SIGKILL)
	w.succeed(ctx, l, "SIGKILL")
}

// endOrla ends Orla with SIGTERM: it ends with 0, and nothing is left either
// (SPEC H4).
func endOrla(ctx context.Context, w *world, s step) {
	w.single.Lock()
	defer w.single.Unlock()
	defer w.book.begin("orla ended")()
	l := w.life()
	l.signal(syscall.SIGTERM)
	w.succeed(ctx, l, "SIGTERM")
	if l.err != nil {
		w.book.violated("H4", "Orla ends on SIGTERM with %v", l.err)
	}
}
