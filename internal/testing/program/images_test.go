package program

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strings"
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

// SPEC M3: an image that an MCP registry names is pulled by a real engine from a real registry of images, pinned by its digest, and
// answers as an McpServer.
func TestM3AnImageOfARegistryAnswers(t *testing.T) {
	t.Parallel()
	podman := podmanOf(t)
	if !podman.IsPodman() {
		t.Skip("SKIPPED: it is told which registry it may trust")
	}
	hub := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(hub.Close)
	host := strings.TrimPrefix(hub.URL, "http://")
	if err := podman.Registries("[[registry]]\nlocation = \"" + host + "\"\ninsecure = true\n"); err != nil {
		t.Fatal(err)
	}
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
