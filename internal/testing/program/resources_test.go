package program

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// pidServer is an MCP server on stdio with one tool, which tells its process.
const pidServer = `#!PYTHON -SEB
import json, os, sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    match message["method"]:
        case "initialize":
            answer["result"] = {"protocolVersion": message["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "pid", "version": "1"}}
        case "tools/list":
            answer["result"] = {"tools": [{"name": "tell_pid", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            answer["result"] = {"content": [{"type": "text", "text": str(os.getpid())}]}
        case _:
            answer["error"] = {"code": -32601, "message": "no method"}
    print(json.dumps(answer), flush=True)
`

// SPEC-TOOLS 1.1, SPEC H2: of a file of many resources a reload changes what
// differs. A server keeps its process, and a document that is at fault takes
// no other with it.
func TestT11AReloadOfResourcesIsByDifference(t *testing.T) {
	t.Parallel()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path)
	}))
	t.Cleanup(service.Close)
	tools, elsewhere := t.TempDir(), t.TempDir()
	server := testkit.WriteTool(t, elsewhere, "pid.py", strings.ReplaceAll(pidServer, "PYTHON", interpreter))

	const head = "apiVersion: orloj.dev/v1\nkind: "
	tool := func(name, path string) string {
		return fmt.Sprintf("%sTool\nmetadata: {name: %s}\nspec: {endpoint: %q}\n", head, name, service.URL+path)
	}
	kept := fmt.Sprintf("%sMcpServer\nmetadata: {name: py}\nspec: {transport: stdio, command: %q}\n", head, server)
	save := func(documents ...string) { testkit.WriteTool(t, tools, "all.yaml", strings.Join(documents, "---\n")) }
	save(tool("first", "/1"), kept)
	o := serveOrla(t, tools)
	o.waitLog("offers", nil)
	log := o.follow()
	log.next("offers", nil)
	reloaded := func(changed, added, removed, kept float64, names ...any) {
		t.Helper()
		l := log.next("reload", nil)
		if l["changed"] != changed || l["added"] != added || l["removed"] != removed || l["kept"] != kept || !slices.Equal(l["names"].([]any), names) {
			t.Errorf("got %v", l)
		}
	}
	o.waitListed("py--tell-pid")
	pid := o.mustCall("py--tell-pid")
	if got := o.mustCall("first"); got != "/1" {
		t.Fatalf("first = %q", got)
	}

	save(tool("first", "/2"), kept)
	reloaded(1, 0, 0, 1, "first")
	save(tool("first", "/2"), kept, tool("second", "/3"))
	reloaded(0, 1, 0, 2, "second")
	if first, second := o.mustCall("first"), o.mustCall("second"); first != "/2" || second != "/3" {
		t.Errorf("first = %q, second = %q", first, second)
	}

	save(tool("first", "/2"), kept, strings.Replace(tool("second", "/3"), "endpoint", "endpiont", 1))
	l := log.next("a tool is not served", nil)
	want := filepath.Join(tools, "all.yaml") + `:14:8: spec.endpiont: unknown key; did you mean "endpoint"?`
	if text := fmt.Sprint(l["err"]); !strings.Contains(text, want) || l["tool"] != "second" {
		t.Errorf("got %v, want %s", l, want)
	}
	reloaded(0, 0, 1, 2, "second")
	if got := o.mustCall("first"); got != "/2" {
		t.Errorf("first = %q", got)
	}

	// A server whose description is at fault serves on; the tool beside it is another matter.
	save(strings.Replace(tool("first", "/2"), "endpoint", "endpiont", 1), strings.Replace(kept, "command", "comand", 1))
	if l := log.next("a tool is not served", nil); l["tool"] != "first" {
		t.Errorf("got %v", l)
	}
	if l := log.next("a capsule's manifest has errors; the capsule goes on unchanged", nil); l["tool"] != "py" {
		t.Errorf("got %v", l)
	}
	reloaded(0, 0, 1, 1, "first")
	if got := o.mustCall("py--tell-pid"); got != pid {
		t.Errorf("the server's process was %s and is %s", pid, got)
	}

	// One that is gone ends, whatever is wrong with another.
	save(strings.Replace(tool("first", "/2"), "endpoint", "endpiont", 1))
	reloaded(0, 0, 1, 0, "py")
}
