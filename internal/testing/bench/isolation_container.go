package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/testing/containertest"
)

// benchImage is what containers are made of: the program, and nothing else.
const benchImage = "localhost/orla-bench:1"

// measureContained compares Orla's containers with the same ones run directly.
func (b *bench) measureContained(ctx context.Context, dir string) (table, error) {
	t := table{
		title:  "A container for each call, against podman run directly (SPEC-TOOLS 7.3)",
		header: []string{"place", "p50", "over direct", "p50 ratio", "CPU", "target", "verdict"},
		note:   "By hand are the same image and the same flags. Orla starts podman too, and then sees to it that the container is gone.",
	}
	engine, err := openPodman()
	if b.scale.quick && err == nil { // each run is a quarter of a second
		engine.close()
		err = errors.New("a quick run starts no containers")
	}
	if err != nil {
		t.add("podman run directly", "-", "-", "-", "-", "-", "not measured: "+oneLine(err))
		return t, nil
	}
	defer engine.close()
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
		{what: "podman run directly", subject: b.podman(ctx)},
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

// podman with a store of its own, in this process's environment.
type podman struct{ *containertest.Engine }

// openPodman makes one, with an image that has folders alone: the program is
// shown to the container, by Orla and by podman alike.
func openPodman() (*podman, error) {
	for _, program := range [...]string{"podman", "runc", "catatonit"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, err
		}
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("this is measured as root")
	}
	e, err := containertest.New()
	if err != nil {
		return nil, err
	}
	p := &podman{e}
	for _, kv := range e.Environ {
		name, value, _ := strings.Cut(kv, "=")
		if err := os.Setenv(name, value); err != nil {
			p.close()
			return nil, err
		}
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range [...]string{"tmp/", "etc/"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
			p.close()
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), e.Import(benchImage, layer.Bytes())); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *podman) close() {
	p.Close()
	for _, kv := range p.Environ {
		name, _, _ := strings.Cut(kv, "=")
		_ = os.Unsetenv(name) // it has a name
	}
}
