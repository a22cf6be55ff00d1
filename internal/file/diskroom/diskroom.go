// Package diskroom ends the pull of an image that takes too much of the disk (SPEC M3, S2): a registry may send more than it has
// said, and layers may unpack to any size. Engines write all of it.
package diskroom

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// looks is how often it is looked at what a pull takes of the disk.
	looks = 100 * time.Millisecond
	// images is how much of the disk the pull of an image takes, in images of the largest size: as it is sent, what is
	// unpacked of it on the way, and its files.
	images = 3
)

// Engine is where an engine on this machine has its images. What is not a folder of this machine is not looked at.
type Engine struct {
	Store  string // images
	Copies string // what was sent so far: podman leaves it there if it is ended
}

// Pull returns what the pull of an image is to be made with: a context, which is cancelled with the reason when the pull takes nine
// tenths of what is free on the disk, or much more than most bytes, which are those of the largest image that is allowed (0 is any);
// and variables for the engine. The caller calls done when the engine has ended, which removes what it has left.
func (e Engine) Pull(ctx context.Context, most int64) (_ context.Context, environ []string, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	sent, remove := func() int64 { return 0 }, func() {}
	if isFolder(e.Copies) {
		if dir, err := os.MkdirTemp(e.Copies, "orla-pull-"); err == nil {
			remove = func() { _ = os.RemoveAll(dir) }
			environ = []string{"TMPDIR=" + dir}
			sent = func() int64 { return SizeOf(dir) }
		}
	}
	go watch(ctx, cancel, most, sent, func() (int64, bool) { return free(e.Store) })
	return ctx, environ, func() {
		cancel(nil)
		remove()
	}
}

// watch ends a pull that takes too much of the disk. sent is what was sent so far, and free what is free where the engine has its images.
func watch(ctx context.Context, end context.CancelCauseFunc, most int64, sent func() int64, free func() (int64, bool)) {
	began, seen := free()
	limit := began / 10 * 9
	if most > 0 {
		limit = min(limit, images*most)
	}
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if most > 0 && sent() > most {
			end(fmt.Errorf("its registry sends more than the %s that an image may have: max_environment in orla.yaml", inMiB(most)))
		}
		now, ok := free()
		if !seen || !ok || began-now <= limit {
			continue
		}
		if most > 0 {
			end(fmt.Errorf("it takes %s of the disk while it is pulled, and an image may have at most %s: max_environment in orla.yaml", inMiB(began-now), inMiB(most)))
		}
		end(fmt.Errorf("it takes %s of the disk while it is pulled, which leaves only %s free", inMiB(began-now), inMiB(now)))
	}
}

// inMiB says a size to a person.
func inMiB(size int64) string { return fmt.Sprintf("%d MiB", (size+1<<20-1)>>20) }

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return filepath.IsAbs(path) && err == nil && info.IsDir()
}

// free is how many bytes this user can still write below a folder, if that can be known.
func free(folder string) (bytes int64, ok bool) {
	var disk syscall.Statfs_t
	if !filepath.IsAbs(folder) || syscall.Statfs(folder, &disk) != nil {
		return 0, false
	}
	return int64(disk.Bavail) * int64(disk.Bsize), true //nolint:gosec,unconvert // it is of another type on darwin
}

// SizeOf returns the bytes of all files below a folder, as far as they can be read.
func SizeOf(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n
}
