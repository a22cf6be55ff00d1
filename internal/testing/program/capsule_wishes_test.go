package program

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// wishesMain is an MCP server that writes down what it is asked to go on with, and
// says over and over that what is followed has changed.
const wishesMain = `#!PYTHON -SEB
import json, os, sys, threading, time

lock = threading.Lock()
followed = set()


def say(**message):
    with lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def tell():
    while True:
        for uri in list(followed):
            say(method="notifications/resources/updated", params={"uri": uri})
        time.sleep(0.02)


threading.Thread(target=tell, daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    method, id, result = message.get("method"), message.get("id"), {}
    if method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "serverInfo": {"name": "wishes", "version": "1"},
                  "capabilities": {"resources": {"subscribe": True}, "logging": {}}}
    elif method == "resources/list":
        result = {"resources": [{"uri": "mem://a", "name": "a"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    elif method in ("resources/subscribe", "logging/setLevel"):
        followed.update([message["params"]["uri"]] if "uri" in message["params"] else [])
        with open("NOTES", "a") as notes:
            notes.write("%s %s\n" % (sys.argv[1:], method))
    if id is not None:
        say(id=id, result=result)
`

// SPEC D8, H2: what clients have asked a capsule for holds for the one that comes
// of a change of its manifest.
func TestD8WishesOutliveAChangedManifest(t *testing.T) {
	t.Parallel()
	tools, notes := t.TempDir(), filepath.Join(t.TempDir(), "notes")
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	main := strings.NewReplacer("PYTHON", interpreter, "NOTES", notes).Replace(wishesMain)
	p := newPack(t, tools, "wishes", "handshake: mcp", map[string]string{"main.py": main})
	p.manifest("handshake: mcp", "")
	o := serveCapsules(t, tools, "")
	heard := make(chan string, 1)
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			select {
			case heard <- r.Params.URI:
			default: // there is enough
			}
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: o.url}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	if _, err := session.ListResources(t.Context(), nil); err != nil { // waits until it is known
		t.Fatal(err)
	}
	if err := session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil { //nolint:staticcheck // deprecated by the newest era only
		t.Fatal(err)
	}
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem://a"}); err != nil {
		t.Fatal(err)
	}
	wished := func(version string) {
		t.Helper()
		testkit.Eventually(t, "version "+version+" is told", func() bool {
			said, _ := os.ReadFile(notes) // it is not there at first
			lines := strings.Split(string(said), "\n")
			return slices.Contains(lines, version+" resources/subscribe") && slices.Contains(lines, version+" logging/setLevel")
		})
		select {
		case <-heard: // of the one before, maybe
		default:
		}
		testkit.Eventually(t, "the client hears of version "+version, func() bool { return len(heard) > 0 })
	}
	wished("[]")
	for n := range 2 {
		arg := fmt.Sprintf("v%d", n)
		p.manifest("handshake: mcp\nargs: ["+arg+"]", "")
		wished("['" + arg + "']")
	}
}
