package program

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// client is a driver of a foreign SDK (testdata/clients).
type client struct {
	t     *testing.T
	stdin io.WriteCloser
	hello map[string]any
	tells chan reply // of progress

	mu      sync.Mutex // guards what follows
	next    int
	waiting map[int]chan reply
}

// reply is one line of a driver.
type reply struct {
	Event  string          `json:"event"` // of a line that answers nothing; that of progress has an ID
	ID     int             `json:"id"`
	OK     bool            `json:"ok"`
	Result json.RawMessage `json:"result"`
	Error  struct {
		Code    any    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// sdk is one way to drive Orla with a foreign client.
type sdk struct {
	name string
	era  string
	via  string // http, sse or stdio
	argv []string
	// stdio has the arguments of an Orla on stdio; nil for those that serve a tools folder.
	stdio []string
}

// sdks lists every combination that exists. Those whose SDK is not installed
// are skipped with the reason, unless ORLA_TEST_CLIENTS=require.
func sdks(t *testing.T) []sdk {
	t.Helper()
	needs.Time(t, "starts clients of other SDKs")
	root, err := filepath.Abs(filepath.Join("..", "..", "..", "testdata", "clients"))
	if err != nil {
		t.Fatal(err)
	}
	var all []sdk
	add := func(name, stamp string, eras map[string][]string, argv ...string) {
		if _, err := os.Stat(filepath.Join(root, stamp)); err != nil {
			if os.Getenv("ORLA_TEST_CLIENTS") == "require" {
				t.Fatalf("the %s client is not installed; run scripts/clients", name)
			}
			t.Logf("SKIPPED: the %s client is not installed; run scripts/clients", name)
			return
		}
		for _, era := range []string{"legacy", "modern"} {
			for _, via := range eras[era] {
				all = append(all, sdk{name: name, era: era, via: via, argv: append(argv, "--era", era)})
			}
		}
	}
	ts := filepath.Join(root, "typescript", "driver.mjs")
	both := map[string][]string{"legacy": {"http", "sse", "stdio"}, "modern": {"http", "stdio"}}
	add("typescript", "typescript/node_modules/.stamp", both, "node", ts)
	add("typescript-1", "typescript/node_modules/.stamp", map[string][]string{"legacy": {"http", "sse", "stdio"}}, "node", ts, "--sdk", "1")
	add("python", "python/.venv/.stamp", both, filepath.Join(root, "python", ".venv", "bin", "python"), filepath.Join(root, "python", "driver.py"))
	return all
}

// connect starts the driver. tools is for stdio, o for the rest.
func (s sdk) connect(t *testing.T, o *running, tools string) *client {
	t.Helper()
	argv := slices.Clone(s.argv)
	switch s.via {
	case "http":
		argv = append(argv, "--http", o.url)
	case "sse":
		argv = append(argv, "--sse", strings.TrimSuffix(o.url, "/mcp")+"/sse")
	case "stdio":
		flags := s.stdio
		if flags == nil {
			flags = []string{"--stdio", "--tools-dir", tools}
		}
		argv = append(append(argv, "--stdio", "--", orlaBinary(t)), flags...)
	}
	c := &client{t: t, tells: make(chan reply, 64), waiting: map[int]chan reply{}}
	stderr := os.Stderr
	if s.via == "stdio" {
		stderr = nil // Orla's log
	}
	out, wait := c.start(t.TempDir(), stderr, argv)
	t.Cleanup(func() {
		_ = c.stdin.Close()
		wait()
	})
	r := bufio.NewReader(out)
	line, err := r.ReadBytes('\n')
	if err != nil || json.Unmarshal(line, &c.hello) != nil || c.hello["event"] != "connected" {
		t.Fatalf("the driver did not connect: %v %s", err, line)
	}
	go c.read(r)
	return c
}

func (c *client) read(r *bufio.Reader) {
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, w := range c.waiting {
				close(w)
			}
			c.waiting = nil
			return
		}
		var a reply
		if json.Unmarshal(line, &a) != nil || a.ID == 0 || a.Event != "" {
			if a.Event == "progress" {
				select {
				case c.tells <- a:
				default: // nobody waits for so many
				}
			}
			continue
		}
		c.mu.Lock()
		if w := c.waiting[a.ID]; w != nil {
			w <- a
			delete(c.waiting, a.ID)
		}
		c.mu.Unlock()
	}
}

// send sends a command and returns its id and where its answer comes.
func (c *client) send(op string, fields map[string]any) (int, chan reply) {
	c.t.Helper()
	c.mu.Lock()
	c.next++
	id := c.next
	w := make(chan reply, 1)
	c.waiting[id] = w
	c.mu.Unlock()
	command := map[string]any{"id": id, "op": op}
	maps.Copy(command, fields)
	raw, err := json.Marshal(command)
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := c.stdin.Write(append(raw, '\n')); err != nil {
		c.t.Fatalf("the driver is gone: %v", err)
	}
	return id, w
}

func (c *client) await(w chan reply) reply {
	c.t.Helper()
	select {
	case a, ok := <-w:
		if !ok {
			c.t.Fatal("the driver ended")
		}
		return a
	case <-time.After(testkit.Patience):
		c.t.Fatal("the driver does not answer")
	}
	return reply{}
}

func (c *client) do(op string, fields map[string]any) reply {
	c.t.Helper()
	_, w := c.send(op, fields)
	return c.await(w)
}

// result is a CallToolResult as the SDKs print it.
type result struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	StructuredContent map[string]any `json:"structuredContent"`
	IsError           bool           `json:"isError"`
	Meta              map[string]any `json:"_meta"`
}

func (c *client) call(name string, args map[string]any) result {
	c.t.Helper()
	a := c.do("call", map[string]any{"name": name, "arguments": args})
	if !a.OK {
		c.t.Fatalf("call %s: %+v", name, a.Error)
	}
	var r result
	if err := json.Unmarshal(a.Result, &r); err != nil {
		c.t.Fatal(err)
	}
	return r
}

// names lists the tools.
func (c *client) names() []string {
	c.t.Helper()
	var list struct {
		Tools []struct{ Name string }
	}
	if a := c.do("list", nil); json.Unmarshal(a.Result, &list) != nil {
		c.t.Fatalf("list: %+v", a)
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names
}

// toolbox is a folder with a tool of each kind of program.
func toolbox(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	examples := filepath.Join("..", "..", "..", "examples", "tools")
	if err := os.CopyFS(dir, os.DirFS(examples)); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, dir, "fail.sh", "#!/bin/sh\necho partly\necho trouble >&2\nexit 3\n")
	testkit.WriteTool(t, dir, "slow.sh", "#!/bin/sh\necho begun\nsleep 60\n")
	source := filepath.Join(t.TempDir(), "main.go")
	program := "package main\n\nimport (\n\t\"io\"\n\t\"os\"\n)\n\nfunc main() { _, _ = io.Copy(os.Stdout, os.Stdin) }\n"
	if err := os.WriteFile(source, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "compiled"), source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// Every foreign client in every era over every transport, with real tools in
// sh, Python, Node and a compiled one (SPEC G2, G5), one of which is added and removed
// while the client listens (SPEC G3).
func TestForeignClients(t *testing.T) {
	needs.Time(t, "starts clients of other SDKs")
	t.Parallel()
	tools := toolbox(t)
	o := serveOrla(t, tools)
	for _, s := range sdks(t) {
		t.Run(fmt.Sprintf("%s/%s/%s", s.name, s.era, s.via), func(t *testing.T) {
			c := s.connect(t, o, tools)
			server, _ := c.hello["server"].(map[string]any)
			if version := fmt.Sprint(c.hello["protocolVersion"]); (version >= "2026-07-28") != (s.era == "modern") || server["name"] != "orla" {
				t.Errorf("connected as %v", c.hello)
			}
			if got := strings.Join(c.names(), " "); got != "compiled fail hello slow slugify today wordcount" {
				t.Errorf("tools = %s", got)
			}
			if got := c.call("hello", map[string]any{"name": "Ada Ł"}); got.Content[0].Text != "Hello, Ada Ł!\n" {
				t.Errorf("sh: %+v", got)
			}
			if got := c.call("wordcount", map[string]any{"text": "a b\nc"}); fmt.Sprint(got.StructuredContent["words"]) != "3" {
				t.Errorf("python: %+v", got)
			}
			if got := c.call("slugify", map[string]any{"title": "Über Größe"}); got.Content[0].Text != "uber-gro-e\n" {
				t.Errorf("node: %+v", got)
			}
			if got := c.call("compiled", map[string]any{"n": 1.5}); got.Content[0].Text != `{"n":1.5}` {
				t.Errorf("compiled: %+v", got)
			}
			failed := c.call("fail", nil)
			if !failed.IsError || failed.Content[0].Text != "partly\n" || failed.Meta["tool_code"] != "execution_failed" ||
				failed.Meta["retryable"] != false || fmt.Sprint(failed.Meta["exit_code"]) != "3" {
				t.Errorf("failure: %+v", failed)
			}
			refused := c.call("wordcount", map[string]any{"text": 5})
			if !refused.IsError || refused.Meta["tool_code"] != "invalid_input" || !strings.Contains(refused.Content[0].Text, "text") {
				t.Errorf("bad argument: %+v", refused)
			}
			if a := c.do("call", map[string]any{"name": "none"}); a.OK || fmt.Sprint(a.Error.Code) != "-32602" {
				t.Errorf("unknown tool: %+v", a)
			}
			slow, answered := c.send("call", map[string]any{"name": "slow"})
			testkit.Eventually(t, "the slow call runs", func() bool { return slowRunning(tools) > 0 })
			if a := c.do("cancel", map[string]any{"target": slow}); !a.OK {
				t.Errorf("cancel: %+v", a)
			}
			if a := c.await(answered); a.OK || a.Error.Code != "cancelled" {
				t.Errorf("cancelled call: %+v", a)
			}
			testkit.Eventually(t, "the cancelled process is gone", func() bool { return slowRunning(tools) == 0 })
			c.seesChanges(t, tools)
			if a := c.do("close", nil); !a.OK {
				t.Errorf("close: %+v", a)
			}
		})
	}
}

// slowRunning counts the processes that run slow.sh of a folder.
func slowRunning(tools string) int {
	n := 0
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		if line, _ := os.ReadFile(path); strings.Contains(string(line), filepath.Join(tools, "slow.sh")) {
			n++
		}
	}
	return n
}

// seesChanges wants a client to hear of a tool that is added and removed while it listens.
func (c *client) seesChanges(t *testing.T, tools string) {
	t.Helper()
	told := func(what string) {
		t.Helper()
		if a := c.do("waitListChanged", map[string]any{"timeoutMs": testkit.Patience.Milliseconds()}); !a.OK {
			t.Fatalf("no list_changed after a tool %s: %+v", what, a)
		}
	}
	path := testkit.WriteTool(t, tools, "fresh.sh", "#!/bin/sh\necho fresh\n")
	told("came")
	if !slices.Contains(c.names(), "fresh") || c.call("fresh", nil).Content[0].Text != "fresh\n" {
		t.Error("the new tool is not there")
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	told("went")
	if slices.Contains(c.names(), "fresh") {
		t.Error("the removed tool is still there")
	}
}
