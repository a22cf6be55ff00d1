package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// signalAll signals processes; one that is over is none.
func signalAll(pids []int, sig syscall.Signal) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, sig)
	}
}

func role(tool string) string {
	if kindOf(tool) == aSimpleTool {
		return roleSimple
	}
	return roleCapsule
}

func killTool(_ context.Context, _ *world, s step) {
	signalAll(of(s.tool, role(s.tool)), syscall.SIGKILL)
}

func terminateTool(_ context.Context, _ *world, s step) {
	signalAll(of(s.tool, role(s.tool)), syscall.SIGTERM)
}

func killChild(_ context.Context, _ *world, s step) {
	signalAll(of(s.tool, roleChild), syscall.SIGKILL)
}

// freezeTool stops a tool's processes, which a machine that swaps looks like.
func freezeTool(ctx context.Context, _ *world, s step) {
	pids := of(s.tool, "")
	signalAll(pids, syscall.SIGSTOP)
	wait(ctx, s.long)
	signalAll(pids, syscall.SIGCONT)
}

func saveTool(_ context.Context, w *world, s step) {
	w.save(s.tool, character{version: fmt.Sprintf("s%d", s.size)})
}

// mistake saves a version that cannot work, and then one that can.
func mistake(ctx context.Context, w *world, s step) {
	faults := []string{"exits", "silent", "stranger"}
	w.save(s.tool, character{version: "bad", fault: faults[s.size%len(faults)]})
	wait(ctx, s.long)
	w.save(s.tool, character{version: fmt.Sprintf("s%d", s.size)})
}

// halfManifest writes a manifest in place, with pauses, as a slow copy does.
func halfManifest(ctx context.Context, w *world, s step) {
	text := w.folder.manifest(sortOf(s.tool), "")
	f, err := os.OpenFile(w.manifestPath(s.tool), os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return // its folder is away
	}
	const pieces = 3
	for i := range pieces {
		_, _ = f.WriteString(text[i*len(text)/pieces : (i+1)*len(text)/pieces]) // the calm writes it anew
		if i < pieces-1 {
			wait(ctx, s.long/pieces)
		}
	}
	_ = f.Close() // as above
}

func emptyManifest(ctx context.Context, w *world, s step) {
	if os.Truncate(w.manifestPath(s.tool), int64(s.size%50)) != nil {
		return // its folder is away
	}
	wait(ctx, s.long)
	w.saveManifest(s.tool, "")
}

func newManifest(_ context.Context, w *world, s step) {
	w.saveManifest(s.tool, fmt.Sprintf("timeout: %ds", 10+s.size%5))
}

// toolAway moves a tool out of the folder, and back.
func toolAway(ctx context.Context, w *world, s step) {
	path := w.folder.file(sortOf(s.tool))
	if kindOf(s.tool) == aCapsule {
		path = filepath.Dir(path)
	}
	aside := filepath.Join(w.folder.aside, "away-"+s.tool)
	if os.Rename(path, aside) != nil {
		return // somebody else has it
	}
	wait(ctx, s.long)
	if os.Rename(aside, path) != nil {
		_ = os.RemoveAll(aside) // it was written anew meanwhile, or its folder is away
	}
}

// byHand does what an operator does. If something does not start, the exit code is
// 1, and that is not the fault of the command.
func byHand(args ...string) func(context.Context, *world, step) {
	return func(ctx context.Context, w *world, s step) {
		w.operate(ctx, append(slices.Clip(args), s.tool)...)
	}
}

func stopAndStart(ctx context.Context, w *world, s step) {
	w.operate(ctx, "stop", s.tool)
	wait(ctx, s.long)
	w.operate(ctx, "start", s.tool)
}
