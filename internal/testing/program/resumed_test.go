package program

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/faultproxy"
	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// longMain is an MCP server whose tool long tells of its progress, and answers when the tool finish is called. It notes each call of long.
const longMain = `#!PYTHON -SEB
import json, sys


def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


asked = token = None
for line in sys.stdin:
    message = json.loads(line)
    method, id, result = message.get("method"), message.get("id"), {}
    if method == "tools/call" and message["params"]["name"] == "long":
        asked, token = id, message["params"]["_meta"]["progressToken"]
        with open("NOTES", "a") as notes:
            notes.write("ran\n")
        say(method="notifications/progress", params={"progressToken": token, "progress": 1})
        continue
    if method == "tools/call":
        say(method="notifications/progress", params={"progressToken": token, "progress": 2})
        say(id=asked, result={"content": [{"type": "text", "text": "done"}]})
        result = {"content": []}
    elif method == "initialize":
        result = {"protocolVersion": message["params"]["protocolVersion"], "serverInfo": {"name": "box", "version": "1"}, "capabilities": {"tools": {}}}
    elif method == "tools/list":
        result = {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("long", "finish")]}
    if id is not None:
        say(id=id, result=result)
`

// longBox is an Orla with that server, behind a network that breaks.
type longBox struct {
	*running
	proxy *faultproxy.Proxy
	start func() *running
	notes string
}

func newLongBox(t *testing.T) *longBox {
	t.Helper()
	interpreter, err := python()
	if err != nil {
		needs.Missing(t, "no python3: %v", err)
	}
	tools, home, port := t.TempDir(), t.TempDir(), strconv.Itoa(freePort(t))
	b := &longBox{notes: filepath.Join(t.TempDir(), "notes")}
	main := strings.NewReplacer("PYTHON", interpreter, "NOTES", b.notes).Replace(longMain)
	box := newPack(t, tools, "box", "handshake: mcp", map[string]string{"main.py": main})
	box.manifest("handshake: mcp", "")
	b.start = func() *running {
		o := startPrepared(t, t.TempDir(), withEnv("HOME="+home), orlaBinary(t), "--tools-dir", tools, "--port", port)
		o.url, _ = o.waitLog("serving", nil)["url"].(string)
		o.waitListed("box__long")
		return o
	}
	b.running = b.start()
	b.proxy = faultproxy.New(t, "127.0.0.1:"+port)
	return b
}

// far is where clients reach it behind the network.
func (b *longBox) far() string { return "http://" + b.proxy.Addr() + "/mcp" }

// ran checks how often the tool has run.
func (b *longBox) ran(t *testing.T, n int) {
	t.Helper()
	said, _ := os.ReadFile(b.notes)
	if got := strings.Count(string(said), "ran"); got != n {
		t.Errorf("the tool ran %d times, want %d", got, n)
	}
}

// finish has the tool answer, by the request of another client, which is near.
func (b *longBox) finish(t *testing.T) {
	t.Helper()
	session := b.near(t)
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "box__finish"}); err != nil {
		t.Fatal(err)
	}
}

func (b *longBox) near(t *testing.T) *mcp.ClientSession {
	t.Helper()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "near", Version: "1"}, nil).Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: b.url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// goLong has a client of the Go SDK call the tool, and returns what it is answered, once it has been told of progress.
func (b *longBox) goLong(t *testing.T) (session *mcp.ClientSession, answer chan any) {
	t.Helper()
	told := make(chan struct{}, 64)
	client := mcp.NewClient(&mcp.Implementation{Name: "far", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(context.Context, *mcp.ProgressNotificationClientRequest) { told <- struct{}{} },
	})
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: b.far(), MaxRetries: 100}, &mcp.ClientSessionOptions{ProtocolVersion: "2025-11-25"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	answer = make(chan any, 1)
	go func() {
		params := &mcp.CallToolParams{Name: "box__long"}
		params.SetProgressToken("p")
		res, err := session.CallTool(t.Context(), params)
		if err != nil {
			answer <- err
			return
		}
		answer <- res.Content[0].(*mcp.TextContent).Text
	}()
	receive(t, told, "progress")
	return session, answer
}

// SPEC Q2: the connections of a client break in the middle of a call. Clients of the official SDKs come back by themselves, and
// have the answer. The tool has run once.
func TestQ2ClientsGetTheirAnswerAfterTheNetworkBroke(t *testing.T) {
	t.Parallel()
	b := newLongBox(t)
	session, answer := b.goLong(t)
	b.proxy.Break()
	b.finish(t)
	if got := receive(t, answer, "answer"); got != "done" {
		t.Errorf("the Go SDK has %v", got)
	}
	b.ran(t, 1)
	if _, err := session.ListTools(t.Context(), nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	calls := 1
	for _, s := range sdks(t) {
		if s.via != "http" || s.era != "legacy" {
			continue
		}
		c := s.connect(t, &running{url: b.far()}, "")
		_, answer := c.send("call", map[string]any{"name": "box__long", "arguments": map[string]any{}, "progress": true})
		receive(t, c.tells, "progress")
		b.proxy.Break()
		b.finish(t)
		if a := c.await(answer); !a.OK || !strings.Contains(string(a.Result), `"done"`) {
			t.Errorf("%s: %s %+v", s.name, a.Result, a.Error)
		}
		calls++
		b.ran(t, calls)
	}
}

// SPEC Q2: an answer does not outlive its process. A client that comes back for it to the next process hears so, and its session goes on.
func TestQ2AnAnswerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	b := newLongBox(t)
	session, answer := b.goLong(t)
	b.signal(syscall.SIGKILL)
	_ = b.wait() // it was killed
	b.running = b.start()
	if err, ok := receive(t, answer, "answer").(error); !ok || !strings.Contains(err.Error(), "not held any more") {
		t.Errorf("the client has %v", err)
	}
	id := session.ID()
	if _, err := session.ListTools(t.Context(), nil); err != nil || session.ID() != id {
		t.Errorf("afterwards: %v", err)
	}
	b.ran(t, 1)
}

// receive waits for what comes.
func receive[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(testkit.Patience):
		t.Fatalf("no %s", what)
	}
	return got
}
