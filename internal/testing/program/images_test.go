package program

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/orla-project/orla/internal/testing/containertest"
	"github.com/orla-project/orla/internal/testing/mcpregistry"
)

// shServer is an MCP server in the shell of an image, with one tool that says a variable.
const shServer = `while read -r line; do
	id=$(printf %s "$line" | sed -n 's/.*"id":\([0-9]*\|"[^"]*"\).*/\1/p')
	case "$line" in
	*'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"thing","version":"1.0.0"}}' ;;
	*'"tools/list"'*) result='{"tools":[{"name":"say","description":"x","inputSchema":{"type":"object"}}]}' ;;
	*'"tools/call"'*) result="{\"content\":[{\"type\":\"text\",\"text\":\"$WORD in an image\"}]}" ;;
	*) result='{}' ;;
	esac
	[ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
`

// registryOf returns podman and a registry of images on this machine that it trusts, with its address.
func registryOf(t *testing.T) (podman *containertest.Engine, hub *httptest.Server, host string) {
	t.Helper()
	podman = podmanOf(t)
	if !podman.IsPodman() {
		t.Skip("SKIPPED: it is told which registry it may trust")
	}
	hub = httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(hub.Close)
	host = strings.TrimPrefix(hub.URL, "http://")
	if err := podman.Registries("[[registry]]\nlocation = \"" + host + "\"\ninsecure = true\n"); err != nil {
		t.Fatal(err)
	}
	return podman, hub, host
}

// SPEC M3: an image that an MCP registry names is pulled by a real engine from a real registry of images, pinned by its digest, and
// answers as an McpServer.
func TestM3AnImageOfARegistryAnswers(t *testing.T) {
	t.Parallel()
	podman, _, host := registryOf(t)
	image := host + "/tools/thing:1.0.0"
	i := newInstallable(t)
	i.write(i.home, "server", shServer)
	if err := podman.Import(image, containertest.Busybox(map[string]string{"server": filepath.Join(i.home, "server")}), `ENTRYPOINT ["/bin/sh", "/server"]`); err != nil {
		t.Fatal(err)
	}
	podman.Run(t, "push", "--quiet", image)
	podman.Run(t, "rmi", image)
	servers := httptest.NewServer(mcpregistry.Handler([]json.RawMessage{json.RawMessage(`{"name":"com.example/thing","version":"1.0.0","description":"x","packages":[` +
		`{"registryType":"oci","identifier":"` + image + `","transport":{"type":"stdio"},"environmentVariables":[{"name":"WORD","isRequired":true}]}]}`)}, nil))
	t.Cleanup(servers.Close)
	i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nstate_dir: ./state\ntimeout: 60s\nregistries: ["+servers.URL+"/v0.1]\ntool_container_engine: podman\n")
	run := func(args ...string) string {
		t.Helper()
		cmd := i.command(args...)
		cmd.Env = append(cmd.Env, podman.Environ...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("orla %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	run("install", "com.example/thing", "--yes", "--set", "WORD=a word")
	if text := fileText(t, i.dir, "tools", "thing", "1.0.0", "server.yaml"); !strings.Contains(text, host+"/tools/thing@sha256:") {
		t.Errorf("the image is not pinned:\n%s", text)
	}
	if got := run("call", "thing--say", "--socket", "none"); strings.TrimSpace(got) != "a word in an image" {
		t.Errorf("it says %q", got)
	}
}

// imageHub serves a registry of images, which have 4 MiB but for those of version 1.1.0, which it does not have. It returns its host.
func imageHub(t *testing.T) string {
	t.Helper()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/1.1.0") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		_, _ = w.Write([]byte(`{"schemaVersion":2,"config":{"size":100},"layers":[{"size":3145728}]}`))
	}))
	t.Cleanup(hub.Close)
	return strings.TrimPrefix(hub.URL, "http://")
}

// SPEC M3, S2: no image is pulled before somebody has agreed to it, nor one that is too large or has a size that nobody knows.
func TestM3AnImageIsPulledWithConsent(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	image := imageHub(t) + "/a/thing"
	version := func(v string) json.RawMessage {
		return json.RawMessage(`{"name":"com.example/thing","version":"` + v + `","description":"x","packages":[` +
			`{"registryType":"oci","identifier":"` + image + `:` + v + `","transport":{"type":"stdio"}}]}`)
	}
	var served atomic.Pointer[http.Handler]
	serve := func(versions ...json.RawMessage) {
		h := mcpregistry.Handler(versions, nil)
		served.Store(&h)
	}
	serve(version("1.0.0"))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*served.Load()).ServeHTTP(w, r) }))
	defer s.Close()
	configure := func(more string) {
		i.write(i.dir, "orla.yaml", "tools_dir: ./tools\nregistries: ["+s.URL+"/v0.1]\n"+more)
	}
	configure("")
	bin, log := t.TempDir(), filepath.Join(i.home, "engine.log")
	i.write(bin, "podman", "#!/bin/sh\necho \"$*\" >>"+log+"\ncase \"$*\" in *RepoDigests*) exit 1;; *Size*) echo 5000000;; esac\n")
	orla := func(args ...string) (string, error) {
		cmd := i.command(args...)
		cmd.Env = append(cmd.Env, "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	refused := func(want string, args ...string) {
		t.Helper()
		_ = os.Remove(log) // it is not there the first time
		if out, err := orla(args...); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
		if text, err := os.ReadFile(log); err == nil {
			t.Errorf("%v: the engine was asked to %s", args, text)
		}
	}
	refused("has to be pulled, and there is no terminal", "install", "com.example/thing")
	configure("max_environment: 2MiB\n")
	refused("has 4 MiB, and an image may have at most 2 MiB", "install", "com.example/thing", "--yes")
	configure("")
	if out, err := orla("install", "com.example/thing", "--yes"); err != nil || !strings.Contains(out, "(4 MiB)") || !strings.Contains(fileText(t, log), "pull --quiet "+image+"@sha256:") {
		t.Errorf("with consent: %v\n%s", err, out)
	}
	if text := fileText(t, i.dir, "tools", "thing", "1.0.0", "server.yaml"); !strings.Contains(text, image+"@sha256:") {
		t.Errorf("the image is not pinned:\n%s", text)
	}
	i.remove("thing", "1.0.0")
	refused("has to be pulled, and there is no terminal", "install") // the lock may be somebody else's
	serve(version("1.1.0"), version("1.0.0"))
	i.must("cache", "clear")
	refused("only one version of a server can be installed", "update", "--dry-run", "--yes")
	i.must("uninstall", "thing")
	if out, err := orla("install", "com.example/thing", "--yes"); err == nil || !strings.Contains(out, "its registry does not have it") || !strings.Contains(out, "podman pull "+image+":1.1.0") {
		t.Errorf("of a size that is not known: %v\n%s", err, out)
	}
	if text := fileText(t, log); strings.Contains(text, "pull") {
		t.Errorf("the engine was asked to %s", text)
	}
}

// SPEC M7, S2: an image that a package names is shown with its size, and has to be agreed to. One that is too large is refused.
func TestM7AnImageIsShown(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	image := imageHub(t) + "/x:"
	says := func(version, want string) {
		t.Helper()
		i.version("1.0.0", "#!/bin/sh\n", "runtime: {isolation_mode: container, image: '"+image+version+"'}\n")
		if out, err := i.orla("install", "--local", i.src); err == nil || !strings.Contains(out, want) {
			t.Errorf("without an agreement: %v %s, want %s", err, out, want)
		}
	}
	says("1.1.0", "It runs in the image "+image+"1.1.0 (nobody here knows how large it is: its registry does not have it)")
	says("1.0.0", "It runs in the image "+image+"1.0.0 (4 MiB), which")
	says("1.0.0", "no terminal to ask on")
	i.must("install", "--yes", "--local", i.src)
	i.must("uninstall", "say")
	i.write(i.dir, "orla.yaml", "max_environment: 2MiB\n")
	says("1.0.0", "has 4 MiB, and an image may have at most 2 MiB")
}
