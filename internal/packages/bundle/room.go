package bundle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/packages/origin"
)

const (
	// roomLooks is how often it is looked at what a pull takes of the disk.
	roomLooks = 100 * time.Millisecond
	// roomFor is how much of the disk the pull of an image takes, in images of the largest size: as it is sent, what is
	// unpacked of it on the way, and its files.
	roomFor = 3
)

// pull pulls the image. A registry may send more than it has said, and layers may unpack to any size: engines write all of it. So the
// pull is ended when it takes too much of the disk. The disk of an engine on another machine is not seen.
func (m *Made) pull(ctx context.Context, engine string, most int64) error {
	store := place(ctx, engine, "{{.Store.GraphRoot}}", "{{.DockerRootDir}}")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var environ []string
	sent := func() int64 { return 0 }
	// Podman puts there what is sent, and leaves it if it is ended.
	if copies := place(ctx, engine, "{{.Store.ImageCopyTmpDir}}"); copies != "" {
		if dir, err := os.MkdirTemp(copies, "orla-pull-"); err == nil {
			defer func() { _ = os.RemoveAll(dir) }()
			environ = append(os.Environ(), "TMPDIR="+dir)
			sent = func() int64 { return origin.SizeOf(dir) }
		}
	}
	go spare(ctx, cancel, most, sent, func() (int64, bool) { return free(store) })
	_, err := outputOf(ctx, environ, engine, "pull", "--quiet", m.Image)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%s: %w", m.Image, context.Cause(ctx))
	}
	return err
}

// spare ends a pull that takes too much of the disk. sent is what was sent so far, and free what is free where the engine has its images.
func spare(ctx context.Context, end context.CancelCauseFunc, most int64, sent func() int64, free func() (int64, bool)) {
	began, seen := free()
	for tick := time.NewTicker(roomLooks); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		if sent() > most {
			end(fmt.Errorf("its registry sends more than the %s that an image may have: max_environment in orla.yaml", InMiB(most)))
		}
		if now, ok := free(); seen && ok && began-now > min(roomFor*most, began/10*9) {
			end(fmt.Errorf("it takes %s of the disk while it is pulled, and an image may have at most %s: max_environment in orla.yaml", InMiB(began-now), InMiB(most)))
		}
	}
}

// place is the first folder of this machine that an engine names by one of some formats; "" if there is none.
func place(ctx context.Context, engine string, formats ...string) string {
	for _, format := range formats {
		said, err := output(ctx, engine, "info", "--format", format)
		folder := strings.TrimSpace(string(said))
		if info, failed := os.Stat(folder); err == nil && failed == nil && info.IsDir() && filepath.IsAbs(folder) {
			return folder
		}
	}
	return ""
}

// free is how many bytes this user can still write below a folder, if that can be known.
func free(folder string) (bytes int64, ok bool) {
	var disk syscall.Statfs_t
	if folder == "" || syscall.Statfs(folder, &disk) != nil {
		return 0, false
	}
	return int64(disk.Bavail) * int64(disk.Bsize), true //nolint:gosec,unconvert // it is of another type on darwin
}
