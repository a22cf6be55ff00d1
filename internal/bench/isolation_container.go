package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// benchImage is what containers are made of: the program, and nothing else.
const benchImage = "localhost/orla-bench:1"

// measureContained compares Orla's containers with the same ones by hand.
func (b *bench) measureContained(ctx context.Context, dir string) (table, error) {
	t := table{
		title:  "A container for each call, against podman run by hand (SPEC-TOOLS 7.3)",
		header: []string{"place", "p50", "over by hand", "p50 ratio", "CPU", "target", "verdict"},
		note:   "By hand are the same image and the same flags. Orla starts podman too, and then sees to it that the container is gone.",
	}
	if err := b.importImage(ctx); err != nil {
		t.add("podman run by hand", "-", "-", "-", "-", "-", "not measured: "+oneLine(err))
		return t, nil
	}
	defer func() { _ = exec.CommandContext(context.WithoutCancel(ctx), "podman", "rmi", "-f", benchImage).Run() }() // it is small, and is made anew
	s, err := b.start(ctx, append(b.orlaHTTP(dir), "--tool-container-engine", "podman", "--tool-container-image", benchImage)...)
	if err != nil {
		return t, err
	}
	front, err := openHTTP(ctx, s, withSession, 1)
	if err != nil {
		s.stop()
		return t, err
	}
	defer front.close()
	rows := []*place{
		{what: "podman run by hand", subject: b.podman(ctx)},
		{what: "Orla, container", subject: front.subject("container"), times: maxContainer},
	}
	return t, b.comparePlaces(ctx, &t, rows)
}

// podman is the program in a container with the flags that Orla gives it, those
// that only keep what is odd out aside.
func (b *bench) podman(ctx context.Context) subject {
	echo := filepath.Join(b.dir, "isolation", "container", "echo")
	return b.byHand(ctx, "podman", "run", "--rm", "--interactive", "--init", "--pull=never", "--log-driver=none",
		"--network=none", "--user=65532:65532", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--ipc=private",
		"--tmpfs=/tmp:rw,noexec,nosuid,nodev,size=16m,mode=1777", "--memory=134217728", "--memory-swap=134217728", "--cpus=0.5", "--pids-limit=64",
		"--mount=type=bind,src="+echo+",dst="+echo+",readonly", "--workdir=/tmp", "--entrypoint="+fmt.Sprintf("[%q]", echo), benchImage)
}

// importImage makes the image, which has folders alone: the program is shown to
// the container by Orla and by hand alike.
func (b *bench) importImage(ctx context.Context) error {
	if _, err := exec.LookPath("podman"); err != nil {
		return err
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range [...]string{"tmp/", "etc/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "podman", "import", "-q", "-", benchImage)
	cmd.Stdin = &layer
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("podman import: %w %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}
