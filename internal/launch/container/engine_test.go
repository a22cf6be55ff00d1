package container_test

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/container"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// script makes a program of shell code.
func script(t testing.TB, code string) string {
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
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
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

// dropsFlags is podman without flags that a sandbox needs.
func (b *bench) dropsFlags() string {
	b.t.Helper()
	return script(b.t, `for a; do shift; case $a in --memory*|--cap-drop*|--read-only) ;; *) set -- "$@" "$a";; esac; done; exec `+b.podman.Program+` "$@"`)
}

// refusedAsLoose checks that a sandbox is refused by dropsFlags.
func (b *bench) refusedAsLoose(l *container.Launcher) {
	b.t.Helper()
	_, err := l.Start(b.t.Context(), sh("true"))
	f := fault.From(err)
	for _, want := range []string{"memory is not limited", "its files can be written to", "its capabilities are not dropped"} {
		if f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, want) {
			b.t.Errorf("%v; want %q", err, want)
		}
	}
	if left := b.left(); len(left) > 0 {
		b.t.Errorf("%v is left", left)
	}
}

// SPEC-TOOLS 7.2: what an engine does not enforce is found out before the tool
// runs, whatever it says of itself.
func TestT72AnEngineThatDropsFlags(t *testing.T) {
	b := newBench(t, nil)
	b.engine = b.newEngine(func(o *container.EngineOptions) { o.Program = b.dropsFlags() })
	b.refusedAsLoose(b.launcher(b.ours(sandboxed)))
}

// SPEC-TOOLS 7.2: what is in an image does not say whether it is isolated: not by
// programs that say that all is well, and not by a file in the prober's way.
func TestT72AnImageDoesNotSayWhetherItIsIsolated(t *testing.T) {
	b := newBench(t, nil)
	const image = "localhost/orla-liar:1"
	dir := t.TempDir()
	for name, text := range map[string]string{"head": "#!/bin/sh\nexec cat /told\n", "told": container.Well()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files := map[string]string{"bin/head": filepath.Join(dir, "head"), "told": filepath.Join(dir, "told"), ".orla-probe/x": filepath.Join(dir, "told")}
	if err := b.podman.Import(image, containertest.Busybox(files)); err != nil {
		t.Fatal(err)
	}
	of := func(o *container.Options) { o.Image = image }
	b.engine = b.newEngine(func(o *container.EngineOptions) { o.Program = b.dropsFlags() })
	b.refusedAsLoose(b.launcher(b.ours(sandboxed, of)))
	b.engine = b.newEngine(nil)
	if o := b.run(b.launcher(b.ours(sandboxed, of)), sh("echo hello")); o.stdout != "hello\n" {
		t.Errorf("with an engine that does what it is told: %+v", o)
	}
}

// described is a program that answers as podman does: to info that it is local, or
// not; run is what it does for a container, whose last arguments are in $@.
func described(t *testing.T, remote bool, run string) string {
	t.Helper()
	return script(t, fmt.Sprintf(`case $1 in
info) echo '{"host":{"cgroupVersion":"v2","cgroupControllers":["memory","cpu","pids"],"serviceIsRemote":%t},"version":{"Version":"5"}}';;
image) echo '[{"Id":"1","Config":{}}]';;
run) %s;;
esac`, remote, run))
}

// SPEC-TOOLS 7.2: if Orla's own program does not run in the containers of an image, and
// does in others, nobody can tell whether they are isolated, and nothing is run. The
// image's programs are not asked.
func TestT72ACannotTellIsARefusal(t *testing.T) {
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
	log := filepath.Join(t.TempDir(), "log")
	b.engine = b.newEngine(func(o *container.EngineOptions) {
		o.Program = described(t, false, `echo "$@" >>`+log+`; case $* in *localhost/orla-trial*) echo '==> x <==';; *) echo 'it breaks' >&2; exit 1;; esac`)
	})
	_, err := b.launcher(nil).Start(t.Context(), sh("true"))
	if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, "cannot find out whether") || !strings.HasSuffix(f.Reason, "is isolated: it breaks") {
		t.Errorf("%v", err)
	}
	ran, err := os.ReadFile(log)
	if err != nil || len(ran) == 0 || strings.Contains(string(ran), "head") {
		t.Errorf("%v; it ran %s", err, ran)
	}
}

// SPEC-TOOLS 7.2: an Orla that cannot run in an image at all refuses an engine of its
// own machine, and says what to do.
func TestT72AnOrlaThatIsNotStatic(t *testing.T) {
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
	b.engine = b.newEngine(func(o *container.EngineOptions) {
		o.Prober = nil
		o.Program = described(t, false, `echo "the image is asked" >&2; exit 1`)
	})
	_, err := b.launcher(nil).Start(t.Context(), sh("true"))
	if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, "CGO_ENABLED=0") {
		t.Errorf("%v", err)
	}
}

// SPEC S1, S2: where an image is asked, it may print without an end, on any of its
// streams: it is ended at once, and so is the engine when it is closed.
func TestS2AnImageThatPrintsWithoutAnEnd(t *testing.T) {
	for name, run := range map[string]string{
		"lines":           `yes ''`,
		"names":           `yes '==> a <=='`,
		"one line":        `yes '' | tr '\n' x`,
		"lines of stderr": `yes '' >&2`,
	} {
		t.Run(name, func(t *testing.T) {
			b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
			e := b.newEngine(func(o *container.EngineOptions) { o.Program = described(t, true, run) })
			b.engine = e
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := b.launcher(nil).Start(ctx, sh("true"))
			if f := fault.From(err); f == nil || f.Code != fault.IsolationUnavailable || !strings.Contains(f.Reason, "prints more than 262144 bytes") {
				t.Errorf("%v", err)
			}
			closed := make(chan struct{})
			go func() { e.Close(); close(closed) }()
			within(t, "the end of the engine", closed)
		})
	}
}

// SPEC S2: what an image says of a command is kept, and told, as a short line.
func TestS2WhatAnImageSaysOfACommandIsShort(t *testing.T) {
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
	told := filepath.Join(t.TempDir(), "told")
	if err := os.WriteFile(told, []byte(container.Well()), 0o644); err != nil {
		t.Fatal(err)
	}
	b.engine = b.newEngine(func(o *container.EngineOptions) {
		o.Program = described(t, true, `case $* in *'"head"'*) cat `+told+`;; *) yes "$(printf '\033[2J\342\200\256x')" | head -c 200000;; esac`)
	})
	_, err := b.launcher(sandboxed).Start(t.Context(), sh("true"))
	f := fault.From(err)
	if f == nil || f.Code != fault.UnsupportedTool || len(f.Reason) > 1000 || strings.ContainsAny(f.Reason, "\x1b\u202e\n") {
		t.Errorf("%.2000q", fmt.Sprint(err))
	}
}

// SPEC-TOOLS 4: where an engine is on another machine, and so does not have Orla's own
// program, it is said which command is missing all the same.
func TestT4AMissingCommandWithoutAProber(t *testing.T) {
	b := newBench(t, nil)
	if !b.podman.IsPodman() {
		t.Skip("SKIPPED: docker does not say that it is elsewhere")
	}
	program := script(t, `case $1 in info) `+b.podman.Program+` "$@" | sed 's/"serviceIsRemote":false/"serviceIsRemote":true/';; *) exec `+b.podman.Program+` "$@";; esac`)
	b.engine = b.newEngine(func(o *container.EngineOptions) { o.Program = program })
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

// SPEC S2: an image declares a few volumes of which each is a flag, or is refused in few
// words.
func TestS2VolumesOfAnImageAreFew(t *testing.T) {
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
	for name, volumes := range map[string]string{
		"many":     `printf '"/v0":{}'; seq -f ',"/v%.0f":{}' 1 20000 | tr -d '\n'`,
		"long":     `printf '"/'; yes x | head -c 200000 | tr -d '\n'; printf '":{}'`,
		"with a :": `printf '"/:'; yes x | head -c 200000 | tr -d '\n'; printf '":{}'`,
	} {
		b.engine = b.newEngine(func(o *container.EngineOptions) {
			o.Program = script(t, `case $1 in
info) echo '{"host":{"cgroupVersion":"v2","cgroupControllers":["memory","cpu","pids"]},"version":{"Version":"5"}}';;
image) printf '[{"Id":"1","Config":{"Volumes":{'; `+volumes+`; echo '}}}]';;
*) exit 1;;
esac`)
		})
		_, err := b.launcher(nil).Start(t.Context(), sh("true"))
		if f := fault.From(err); f == nil || f.Code != fault.RuntimePolicyInvalid || len(f.Reason) > 1000 {
			t.Errorf("%s: %.1000v", name, err)
		}
	}
}

// SPEC-TOOLS 7.3: a tool in a container of docker's gets none of the proxies in docker's configuration, which have passwords; nor do the
// containers that are looked into. Docker leaves those alone that it is given.
func TestT73TheProxiesOfDockerAreNotATools(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
	b.engine = b.newEngine(func(o *container.EngineOptions) {
		o.Environ = append(o.Environ, "https_proxy=http://of-orla")
		o.Program = script(t, `case $1 in
info) echo '{"ServerVersion":"28","CgroupVersion":"2","MemoryLimit":true,"CpuCfsQuota":true,"PidsLimit":true,"NCPU":2}';;
image) echo '[{"Id":"1","Config":{}}]';;
run) { printf "run\n"; printf "%s\n" "$@" | sed -n 's/^--env=/flag /p'; env | grep -i proxy | sed 's/^/has /'; case " $* " in *--env-file=*) cat <&3;; esac; } >>'`+runs+`'
	cat '`+runs+`.told'; exit 0;;
esac`)
	})
	if err := os.WriteFile(runs+".told", []byte(container.Well()), 0o600); err != nil {
		t.Fatal(err)
	}
	spec := sh("env")
	spec.Env = []string{"https_proxy=http://of-the-tool", "FTP_PROXY=ftp://of-the-tool"}
	b.run(b.launcher(nil), spec)
	text, err := os.ReadFile(runs)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(string(text), "run\n")[1:]
	if len(all) < 2 {
		t.Fatalf("there were %d containers", len(all))
	}
	for i, one := range all {
		lines := strings.Split(one, "\n")
		for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "NO_PROXY", "all_proxy", "ftp_proxy"} {
			flag := "flag " + name + "="
			if i == len(all)-1 && (name == "HTTPS_PROXY" || name == "ftp_proxy") { // an empty ftp_proxy would undo FTP_PROXY in Python
				flag = "flag " + name
			}
			if !slices.Contains(lines, flag) {
				t.Errorf("container %d gets docker's %s: %q", i+1, name, lines)
			}
		}
	}
	last := strings.Split(all[len(all)-1], "\n")
	if !slices.Contains(last, "https_proxy=http://of-the-tool") || !slices.Contains(last, "FTP_PROXY=ftp://of-the-tool") || !slices.Contains(last, "flag https_proxy") || slices.Contains(last, "has https_proxy=http://of-orla") {
		t.Errorf("the tool gets another one than its own: %q", last)
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

// SPEC-TOOLS 7.2: a volume that an image declares is not a folder of the disk.
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

// SPEC-TOOLS 7.2: the tool's user may write to a volume that an image declares, whatever the mode of the image's folder is.
func TestT72AVolumeOfAnImageIsForEveryUser(t *testing.T) {
	runs := filepath.Join(t.TempDir(), "runs")
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
	b.engine = b.newEngine(func(o *container.EngineOptions) {
		o.Program = script(t, `case $1 in
info) echo '{"host":{"cgroupVersion":"v2","cgroupControllers":["memory","cpu","pids"]},"version":{"Version":"5"}}';;
image) echo '[{"Id":"1","Config":{"Volumes":{"/var/data":{}}}}]';;
run) printf "%s\n" "$@" >>'`+runs+`'; cat '`+runs+`.told';;
esac`)
	})
	if err := os.WriteFile(runs+".told", []byte(container.Well()), 0o600); err != nil {
		t.Fatal(err)
	}
	b.run(b.launcher(nil), sh("true"))
	text, err := os.ReadFile(runs)
	if want := "--tmpfs=/var/data:rw,noexec,nosuid,nodev,size=16m,mode=1777\n"; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s%v; want %s", text, err, want)
	}
}

// SPEC S2, M3: what a pull puts aside is in a folder of its own, which is removed with it: an engine that is ended leaves it. Orla may
// have another TMPDIR: programs in Go, as engines are, take the first of two.
func TestS2WhatAPullLeavesIsRemoved(t *testing.T) {
	copies, other, told := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "told")
	b := &bench{t: t, podman: &containertest.Engine{}, log: &testkit.Log{}}
	b.engine = b.newEngine(func(o *container.EngineOptions) {
		o.Program = script(t, `case $1 in
info) echo '{"host":{"cgroupVersion":"v2","cgroupControllers":["memory","cpu","pids"]},"store":{"graphRoot":"/","imageCopyTmpDir":"`+copies+`"},"version":{"Version":"5"}}';;
image) exit 1;;
pull) tr '\0' '\n' </proc/$$/environ | sed -n s/^TMPDIR=//p >'`+told+`'; echo half >"$TMPDIR/blob"; exit 1;;
esac`)
		o.Environ = append(o.Environ, "TMPDIR="+other)
	})
	if _, err := b.launcher(nil).Start(t.Context(), sh("true")); err == nil {
		t.Error("it starts without its image")
	}
	text, err := os.ReadFile(told)
	if err != nil || filepath.Dir(strings.TrimSpace(string(text))) != copies {
		t.Errorf("it is pulled in %q, %v", text, err)
	}
	if left, err := os.ReadDir(copies); err != nil || len(left) > 0 {
		t.Errorf("%v stays of it, %v", left, err)
	}
}
