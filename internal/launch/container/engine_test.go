package container_test

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/orla-project/orla/internal/containertest"
	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/secret"
)

// script makes a program of shell code.
func script(t *testing.T, code string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "podman")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+code), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// SPEC-TOOLS 7.2: an engine that ignores limits, and says so in a warning at most,
// is refused, with what to do.
func TestT72AnEngineThatIgnoresLimits(t *testing.T) {
	b := &bench{t: t, podman: &containertest.Engine{}, log: &syncBuffer{}}
	for info, want := range map[string]string{
		`{"host":{"cgroupVersion":"v1","cgroupControllers":["memory","cpu","pids"],"security":{"rootless":true}},"version":{"Version":"4.3.1"}}`: "run Orla and its engine as root",
		`{"host":{"cgroupVersion":"v2","cgroupControllers":["memory","pids"],"security":{"rootless":true}},"version":{"Version":"5"}}`:           "no cgroup controller for cpu; delegate",
		`{"ServerVersion":"28","CgroupVersion":"2","MemoryLimit":true,"CpuCfsQuota":true,"PidsLimit":false}`:                                     "no cgroup controller for pids",
		`{"ServerVersion":"","ServerErrors":["Cannot connect to the Docker daemon at unix:///x. Is it running?"]}`:                               "Cannot connect to the Docker daemon",
		`{"something":"else"}`: "does not answer as podman and docker do",
	} {
		b.engine = b.newEngine(func(o *container.EngineOptions) {
			o.Prober = nil
			o.Program = script(t, `case $1 in info) echo '`+info+`';; image) echo '[{"Id":"1","Config":{}}]';; *) echo started >&2; exit 125;; esac`)
		})
		_, err := b.launcher(nil).Start(t.Context(), sh("true"))
		if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// SPEC-TOOLS 7.2: what an engine does not enforce is found out before the tool
// runs, whatever it says of itself.
func TestT72AnEngineThatDropsFlags(t *testing.T) {
	b := newBench(t, nil)
	program := script(t, `for a; do shift; case $a in --memory*|--cap-drop*|--read-only) ;; *) set -- "$@" "$a";; esac; done; exec `+b.podman.Program+` "$@"`)
	b.engine = b.newEngine(func(o *container.EngineOptions) { o.Program = program; o.Prober = nil }) // by the image's own head
	_, err := b.launcher(b.ours(sandboxed)).Start(t.Context(), sh("true"))
	f := fault.From(err)
	for _, want := range []string{"memory is not limited", "its files can be written to", "its capabilities are not dropped"} {
		if f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	if left := b.left(); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// SPEC-TOOLS 4: an Orla that does not run in an image says which command is missing
// there all the same.
func TestT4AMissingCommandWithoutAProber(t *testing.T) {
	b := newBench(t, func(o *container.EngineOptions) { o.Prober = nil })
	for path, want := range map[string]string{
		"nonesuch":      "it is not in PATH, which is /usr/local/sbin",
		"/bin/nonesuch": "there is no such file",
	} {
		_, err := b.launcher(b.ours()).Start(t.Context(), launch.Spec{Path: path, Argv: []string{path}})
		if f := fault.From(err); f == nil || f.Code != fault.UnsupportedTool || !strings.Contains(f.Reason, want) {
			t.Errorf("%s: %v; want %q", path, err, want)
		}
	}
	if o := b.run(b.launcher(b.ours()), sh("echo hello")); o.exit.Err != nil || o.exit.Code != 0 {
		t.Errorf("a command that is there: %+v", o.exit)
	}
}

// push puts the test's image into a registry, which the engine trusts from then on.
func (b *bench) push(host, image, account string) {
	b.t.Helper()
	if b.podman.IsPodman() {
		if err := b.podman.Registries("unqualified-search-registries = []\n[[registry]]\nlocation = \"" + host + "\"\ninsecure = true\n"); err != nil {
			b.t.Fatal(err)
		}
		b.podman.Run(b.t, "push", "--quiet", "--creds="+account, containertest.Image, "docker://"+image)
		return
	}
	dir := b.t.TempDir() // docker trusts what is on this machine
	config := fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, host, base64.StdEncoding.EncodeToString([]byte(account)))
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.podman.Run(b.t, "tag", containertest.Image, image)
	b.podman.Run(b.t, "--config="+dir, "push", image)
	b.podman.Run(b.t, "rmi", image)
}

// SPEC-TOOLS 7.3: an image that is not there is pulled, with a secret that is on
// no command line and in no folder afterwards.
func TestT73Pull(t *testing.T) {
	b := newBench(t, nil)
	const password = "swordfish-of-the-registry"
	open := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, given, _ := r.BasicAuth()
		if user != "ada" || subtle.ConstantTimeCompare([]byte(given), []byte(password)) != 1 {
			w.Header().Set("WWW-Authenticate", `Basic realm="tools"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		open.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	image := host + "/team/tool:1"
	b.push(host, image, "ada:"+password)

	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	with := func(text string) *container.Launcher {
		return b.launcher(b.ours(func(o *container.Options) {
			o.Image = image
			if text != "" {
				o.PullSecret = func() (secret.Value, error) { return secret.NewValue(text), nil }
			}
		}))
	}
	for _, wrong := range []string{"", "ada:wrong-one"} {
		b.engine = b.newEngine(nil)
		_, err := with(wrong).Start(t.Context(), sh("true"))
		if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, image) || strings.Contains(err.Error(), "wrong-one") {
			t.Errorf("pulled with %q: %v", wrong, err)
		}
	}
	b.engine = b.newEngine(nil)
	if o := b.run(with("ada:"+password), sh("echo pulled")); o.stdout != "pulled\n" {
		t.Errorf("%+v", o)
	}
	if left, err := filepath.Glob(filepath.Join(temp, "*", "pull-*")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v is left", left, err)
	}
	if strings.Contains(b.log.String(), password) {
		t.Error("the log has the password")
	}
	b.engine = b.newEngine(nil)
	broken := b.launcher(func(o *container.Options) {
		o.Image, o.PullSecret = host+"/team/tool:2", func() (secret.Value, error) {
			return secret.Value{}, fault.New(fault.SecretResolutionFailed, "there is no such secret")
		}
	})
	if _, err := broken.Start(t.Context(), sh("true")); fault.CodeOf(err) != fault.SecretResolutionFailed {
		t.Errorf("without the secret: %v", err)
	}
}

// SPEC-TOOLS 7.2: a volume that an image declares is no folder of the disk.
func TestT72VolumesOfImages(t *testing.T) {
	b := usualBench(t)
	const image = "localhost/orla-volumes:1"
	if err := b.podman.Import(image, containertest.Busybox(nil), "VOLUME /var/data"); err != nil {
		t.Fatal(err)
	}
	o := b.run(b.launcher(b.ours(sandboxed, func(o *container.Options) { o.Image = image })), sh(`grep ' /var/data ' /proc/self/mountinfo; touch /var/data/x && echo written; cp /bin/busybox /var/data && /var/data/busybox true`))
	if !strings.Contains(o.stdout, "tmpfs") || !strings.Contains(o.stdout, "noexec") || o.exit.Code == 0 {
		t.Errorf("%+v", o)
	}
}
