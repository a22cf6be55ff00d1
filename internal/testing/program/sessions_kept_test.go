package program

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// askMain is an MCP server that asks its client, and notes what it is told of others.
const askMain = `#!PYTHON -SEB
import json, sys


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


asked = None
for line in sys.stdin:
    message = json.loads(line)
    method, id, result = message.get("method"), message.get("id"), {}
    if method is None and id == "q":
        say(id=asked, result={"content": [{"type": "text", "text": message["result"]["action"]}]})
        continue
    if method == "tools/call" and message["params"]["name"] == "ask":
        asked = id
        say(id="q", method="elicitation/create", params={"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}})
        continue
    if method == "tools/call":
        say(method="notifications/resources/updated", params={"uri": "mem://a"})
        say(method="notifications/message", params={"level": "debug", "data": "changed"})
        result = {"content": []}
    elif method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "serverInfo": {"name": "box", "version": "1"},
                  "capabilities": {"resources": {"subscribe": True}, "logging": {}, "tools": {}}}
    elif method == "tools/list":
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("ask", "change")]}
    elif method == "resources/list":
        result = {"resources": [{"uri": "mem://a", "name": "a"}]}
    elif method == "resources/templates/list":
        result = {"resourceTemplates": []}
    elif method in ("resources/subscribe", "logging/setLevel"):
        with open("NOTES", "a") as notes:
            notes.write(method + "\n")
    if id is not None:
        say(id=id, result=result)
`

// SPEC Q2: a client goes on with its session after Orla was killed and after it was stopped, with what it has
// declared, followed and set, and without a word of its own. Nothing of its capsules outlives Orla (D3).
func TestQ2ClientsGoOnAfterARestart(t *testing.T) {
	t.Parallel()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	tools, home, notes := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "notes")
	main := strings.NewReplacer("PYTHON", interpreter, "NOTES", notes).Replace(askMain)
	box := newPack(t, tools, "box", "handshake: mcp", map[string]string{"main.py": main})
	box.manifest("handshake: mcp", "")
	port := strconv.Itoa(freePort(t))
	start := func() *running {
		o := startPrepared(t, t.TempDir(), withEnv("HOME="+home), orlaBinary(t), "--tools-dir", tools, "--port", port)
		o.url, _ = o.waitLog("serving", nil)["url"].(string)
		return o
	}
	told := func(method string, times int) {
		t.Helper()
		testkit.Eventually(t, "the capsule is told of "+method, func() bool {
			said, _ := os.ReadFile(notes) // it is not there at first
			return strings.Count(string(said), method) >= times
		})
	}
	o := start()
	o.waitListed("box__ask")
	var updates, messages, asked atomic.Int32
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ClientOptions{
		ResourceUpdatedHandler: func(context.Context, *mcp.ResourceUpdatedNotificationRequest) { updates.Add(1) },
		LoggingMessageHandler:  func(context.Context, *mcp.LoggingMessageRequest) { messages.Add(1) }, //nolint:staticcheck // deprecated by the newest era only
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			asked.Add(1)
			return &mcp.ElicitResult{Action: "decline"}, nil
		},
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: o.url, MaxRetries: 100}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	id := session.ID()
	if err := session.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil { //nolint:staticcheck // deprecated by the newest era only
		t.Fatal(err)
	}
	if err := session.Subscribe(t.Context(), &mcp.SubscribeParams{URI: "mem://a"}); err != nil {
		t.Fatal(err)
	}
	told("resources/subscribe", 1)
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGKILL}
	rounds := needs.Rounds(len(signals), len(signals))
	for n := range rounds {
		sig := signals[n%len(signals)]
		o.signal(sig)
		_ = o.wait() // 0, or that it was killed
		testkit.Eventually(t, "nothing outlives Orla", func() bool { return len(box.pids()) == 0 })
		o = start()
		o.waitListed("box__ask")
		answer, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__ask"})
		if err != nil {
			t.Fatalf("after %v: %v", sig, err)
		}
		if text, _ := answer.Content[0].(*mcp.TextContent); text == nil || text.Text != "decline" {
			t.Errorf("after %v the client was not asked: %v", sig, answer.Content)
		}
		told("resources/subscribe", n+2)
		told("logging/setLevel", n+2)
		before, said := updates.Load(), messages.Load()
		testkit.Eventually(t, "the client hears of the resource and of the log", func() bool {
			if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__change"}); err != nil {
				t.Fatal(err)
			}
			return updates.Load() > before && messages.Load() > said
		})
	}
	if int(asked.Load()) != rounds || session.ID() != id {
		t.Errorf("the client was asked %d times, in session %s, which was %s", asked.Load(), session.ID(), id)
	}
}
