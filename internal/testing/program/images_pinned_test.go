package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/needs"
)

// SPEC M5, M7: the image that a package names by a tag runs by the digest that it had when somebody agreed to it, whatever the tag names
// later. Another one for the same version is refused, and an update shows it.
func TestM7AnImageStaysTheOneThatWasInstalled(t *testing.T) {
	t.Parallel()
	needs.Programs(t, "git")
	podman, hub, host := registryOf(t)
	image := host + "/tools/base:1"
	i := newInstallable(t)
	push := func(word string) {
		t.Helper()
		i.write(i.home, "word", word)
		if err := podman.Import(image, containertest.Busybox(map[string]string{"word": filepath.Join(i.home, "word")})); err != nil {
			t.Fatal(err)
		}
		podman.Run(t, "push", "--quiet", image)
		podman.Run(t, "rmi", image)
	}
	tag := func(version string) {
		t.Helper()
		i.version(version, "#!/bin/sh\ncat /word\n", "runtime: {isolation_mode: container, image: '"+image+"'}\n")
		cmd := exec.CommandContext(t.Context(), "sh", "-c", "git init -q && git add -A && git commit -qm x && git tag v"+version)
		cmd.Dir, cmd.Env = i.src, append(os.Environ(), gitConfig(t))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	orla := func(args ...string) (string, error) {
		cmd := i.command(args...)
		cmd.Env = append(cmd.Env, podman.Environ...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(args ...string) string {
		t.Helper()
		out, err := orla(args...)
		if err != nil {
			t.Fatalf("orla %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	says := func(want string) {
		t.Helper()
		if got := must("call", "say", "--socket", "none"); strings.TrimSpace(got) != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	forget := func() { // what other tests have made stays
		t.Helper()
		for line := range strings.Lines(podman.Run(t, "images", "--all", "--no-trunc", "--format", "{{.Repository}} {{.ID}}")) {
			if of, id, _ := strings.Cut(strings.TrimSpace(line), " "); of == host+"/tools/base" {
				podman.Run(t, "rmi", "--force", id)
			}
		}
	}
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\ntimeout: 60s\ntool_container_engine: podman\n")
	push("first")
	tag("1.0.0")
	must("install", "file://"+i.src, "--yes")
	lock := fileText(t, i.dir, "orla.lock")
	digest := regexp.MustCompile(`image: "?(sha256:[0-9a-f]{64})`).FindStringSubmatch(lock)
	if digest == nil {
		t.Fatalf("the lock has no digest of the image:\n%s", lock)
	}
	says("first")
	push("second")
	forget()
	says("first")
	if out, err := orla("install", "file://"+i.src+"@v1.0.0", "--frozen", "--yes"); err == nil || !strings.Contains(out, "somebody moved its tag") {
		t.Errorf("another image for the same version: %v\n%s", err, out)
	}
	i.remove("say", "1.0.0")
	if out := must("install", "--frozen", "--yes"); !strings.Contains(out, "always the one that has the digest "+digest[1]) {
		t.Errorf("the image of the lock is not shown:\n%s", out)
	}
	says("first")
	tag("1.1.0")
	if out := must("update", "--dry-run"); !strings.Contains(out, "new image "+host+"/tools/base@sha256:") {
		t.Errorf("the update does not show the image:\n%s", out)
	}
	must("update", "--yes")
	says("second")
	// A lock of an Orla that had no digests of images goes on to work, and an installation from it adds them, unless it is frozen.
	old := regexp.MustCompile(`(?m)^    image: .*\n`).ReplaceAllString(fileText(t, i.dir, "orla.lock"), "")
	i.write(i.dir, "orla.lock", old)
	says("second")
	i.remove("say", "1.1.0")
	if out := must("install", "--frozen", "--yes"); !strings.Contains(out, "may be another image") || fileText(t, i.dir, "orla.lock") != old {
		t.Errorf("an old lock that is frozen:\n%s", out)
	}
	i.remove("say", "1.1.0")
	must("install", "--yes")
	if text := fileText(t, i.dir, "orla.lock"); !strings.Contains(text, "    image: ") {
		t.Errorf("an old lock gets no digest:\n%s", text)
	}
	says("second")
	// Nobody can say which image it is: that has to be accepted.
	hub.Close()
	forget()
	must("uninstall", "say")
	if out, err := orla("install", "file://"+i.src, "--yes"); err == nil || !strings.Contains(out, "not possible to enforce that its image stays the same") {
		t.Errorf("without a digest: %v\n%s", err, out)
	}
	must("install", "file://"+i.src, "--yes", "--accept-unenforced")
}
