package program

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// farServer is the reference server over Streamable HTTP.
type farServer struct {
	t    *testing.T
	dir  string
	port int
	cmd  *exec.Cmd
}

func (f *farServer) url() string { return fmt.Sprintf("http://127.0.0.1:%d/mcp", f.port) }

// start starts it, and waits until it listens. It is killed at the end of the test.
func (f *farServer) start() {
	f.t.Helper()
	f.cmd = exec.Command("node", filepath.Join(f.dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"), "streamableHttp")
	f.cmd.Env = append(os.Environ(), "PORT="+strconv.Itoa(f.port))
	cmd := f.cmd
	said, err := cmd.StderrPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { f.kill(cmd) })
	lines := bufio.NewReader(said)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			f.t.Fatalf("the far server ended: %v", err)
		}
		if strings.Contains(line, "listening") {
			break
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }() // until it ends
}

func (f *farServer) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill() // it may be gone
	_ = cmd.Wait()
}

// mcpServers writes resources for three servers, one of them far away, and for a
// tool of that, and returns their folder.
func mcpServers(t *testing.T, far *farServer) string {
	t.Helper()
	memory := needs.Server(t, "memory")
	far.t, far.dir, far.port = t, needs.Server(t, "everything"), freePort(t)
	dir := filepath.Join(t.TempDir(), "tools")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: far}
spec:
  transport: http
  endpoint: %q
  reconnect: {max_attempts: 0, backoff: 100ms}
---
apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: near_by}
spec:
  transport: stdio
  command: node
  args: [%q, stdio]
  reconnect: {max_attempts: 0, backoff: 100ms}
---
apiVersion: orloj.dev/v1
kind: McpServer
metadata: {name: memory}
spec:
  transport: stdio
  command: node
  args: [%q]
  env: [{name: MEMORY_FILE_PATH, value: %q}, {name: TOKEN, secretRef: token}]
  tool_filter: {include: [create_entities, read_graph, delete_entities]}
---
apiVersion: orloj.dev/v1
kind: Secret
metadata: {name: token}
spec: {stringData: {value: planted}}
---
apiVersion: orloj.dev/v1
kind: Tool
metadata: {name: sum}
spec:
  type: mcp
  mcp_server_ref: far
  mcp_tool_name: get-sum
  runtime: {timeout: 10s}
`, far.url(), filepath.Join(far.dir, "node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
		filepath.Join(memory, "node_modules/@modelcontextprotocol/server-memory/dist/index.js"), filepath.Join(t.TempDir(), "graph.jsonl"))
	if err := os.WriteFile(filepath.Join(dir, "servers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// having counts the names, of those that names gives, with a prefix.
func having(names, prefix string) (n int) {
	for name := range strings.FieldsSeq(names) {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// SPEC-TOOLS 3.5: servers as they come, over stdio and over HTTP, answer the
// same: texts, images, structured content, progress, errors, and what they ask
// the client.
func TestMcpServersAnswerTheSame(t *testing.T) {
	t.Parallel()
	var far farServer
	tools := mcpServers(t, &far)
	far.start()
	o := serveOrla(t, tools)
	testkit.Eventually(t, "all servers are ready", func() bool {
		names := o.names()
		return having(names, "far--") > 10 && having(names, "near-by--") > 10 && having(names, "memory--") > 0
	})
	names := o.names()
	for _, want := range []string{"memory--create-entities", "memory--read-graph", "memory--delete-entities", "sum", "far--get-sum", "near-by--get-sum"} {
		if !slices.Contains(strings.Fields(names), want) {
			t.Errorf("there is no %s among %q", want, names)
		}
	}
	if n := having(names, "memory--"); n != 3 {
		t.Errorf("%d tools of memory are listed, want the 3 that are included", n)
	}
	w := attend(t, wayOf(t, "typescript legacy http"), t.TempDir(), "--http", o.url)
	questions := func(server string) []question {
		call := func(tool string, args fields, events int) question { return called(server+"--"+tool, args, events) }
		return []question{
			call("echo", fields{"message": "Grüße ☃"}, 0),
			call("get-annotated-message", fields{"messageType": "error", "includeImage": true}, 0),
			call("get-tiny-image", nil, 0),
			call("get-structured-content", fields{"location": "Chicago"}, 0),
			call("get-resource-links", fields{"count": 4}, 0),
			call("trigger-long-running-operation", fields{"duration": 0.1, "steps": 4}, 4),
			call("trigger-sampling-request", fields{"prompt": "hello", "maxTokens": 5}, 1),
			call("trigger-elicitation-request", nil, 1),
			call("get-sum", fields{"a": "one", "b": 2}, 0),
			call("get-resource-reference", fields{"resourceType": "Text", "resourceId": -1}, 0),
		}
	}
	want := w.ask(questions("near-by"))
	got := map[string]any{}
	for key, value := range w.ask(questions("far")) {
		got[strings.Replace(key, "call far--", "call near-by--", 1)] = value
	}
	for _, line := range differences(want, got, "") {
		if !strings.Contains(line, "far--") { // the name in an error of arguments
			t.Error(line)
		}
	}
	if len(got) < 16 { // ten answers, four messages of progress, two questions
		t.Errorf("the far server gave %d answers and events", len(got))
	}
	a, err := o.call("sum", `{"a":1,"b":2}`)
	if err != nil || a.Result == nil || a.Result.Content[0].Text != "The sum of 1 and 2 is 3." {
		t.Errorf("sum answers %+v, %v", a, err)
	}
	if a, err = o.call("memory--create-entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["counts"]}]}`); err != nil || a.Result == nil || a.Result.IsError {
		t.Errorf("memory answers %+v, %v", a, err)
	}
	if text := o.mustCall("memory--read-graph"); !strings.Contains(text, "Ada") {
		t.Errorf("memory has %s", text)
	}
	if a, err = o.call("memory--search-nodes", `{}`); err != nil || a.Error == nil {
		t.Errorf("what is not included answers %+v, %v", a, err)
	}
	if o.count("", func(l map[string]any) bool { return strings.Contains(fmt.Sprint(l), "planted") }) > 0 {
		t.Error("the log has a secret")
	}
}

// SPEC-TOOLS 3.5: a server that is killed is made again when it is back; its
// tools are listed throughout; calls meanwhile wait, or fail and say that they
// may be tried again. It is operated by its name.
func TestMcpServersGoAndComeBack(t *testing.T) {
	t.Parallel()
	var far farServer
	tools := mcpServers(t, &far)
	far.start()
	dir := filepath.Dir(tools)
	o := serveThere(t, dir)
	testkit.Eventually(t, "all servers are ready", func() bool {
		names := o.names()
		return having(names, "far--") > 10 && having(names, "near-by--") > 10 && having(names, "memory--") > 0
	})
	listed := o.names()
	same := func(when string) {
		t.Helper()
		if now := o.names(); now != listed {
			t.Errorf("%s the tools are %q, want %q", when, now, listed)
		}
	}
	echo := func(server string) *answer {
		t.Helper()
		a, err := o.call(server+"--echo", `{"message":"x"}`)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	works := func(a *answer) bool {
		return a.Result != nil && !a.Result.IsError && a.Result.Content[0].Text == "Echo: x"
	}

	if status := o.toolStatus("far"); status.State != "READY" || status.Pid != 0 {
		t.Errorf("the far server is %+v", status)
	}
	pid := o.toolStatus("near_by").Pid
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the near server is another process", func() bool {
		s := o.toolStatus("near_by")
		return s.State == "READY" && s.Pid != pid
	})
	same("after the near server was killed")
	if a := echo("near-by"); !works(a) {
		t.Errorf("the near server answers %+v", a)
	}

	far.kill(far.cmd)
	testkit.Eventually(t, "the far server is known to be away", func() bool { return o.toolStatus("far").State == "CRASHED" })
	same("while the far server is away")
	if a := echo("far"); a.Result == nil || !a.Result.IsError || a.Result.Meta["retryable"] != true {
		t.Errorf("while the far server is away it answers %+v", a)
	}
	if text := o.mustOrla("status", "far"); !strings.Contains(text, "lost its server") {
		t.Errorf("orla status far prints\n%s", text)
	}
	far.start()
	testkit.Eventually(t, "the far server is back", func() bool { return works(echo("far")) })
	same("after the far server came back")

	// A server that was started again without being missed does not know the session.
	far.kill(far.cmd)
	far.start()
	testkit.Eventually(t, "the far server answers", func() bool { return works(echo("far")) })

	o.mustOrla("stop", "far")
	if a := echo("far"); a.Result == nil || !a.Result.IsError {
		t.Errorf("a server that was stopped by an operator answers %+v", a)
	}
	same("while the far server is stopped by an operator")
	o.mustOrla("start", "far")
	o.mustOrla("restart", "far")
	if a := echo("far"); !works(a) {
		t.Errorf("after a restart by an operator it answers %+v", a)
	}
	o.mustOrla("logs", "far")

	// The tools are known over a restart of Orla, with the server away.
	far.kill(far.cmd)
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
	o = o.again()
	if now := o.names(); having(now, "far--") != having(listed, "far--") {
		t.Errorf("after a restart the tools are %q", now)
	}

	// They go when the resource does.
	if err := os.Remove(filepath.Join(tools, "servers.yaml")); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the tools are gone", func() bool { return o.names() == "" })
}

// SPEC-TOOLS 3.5: reconnect.max_attempts ends in STOPPED, with the reason; and
// a session that is idle is let go of until it is called.
func TestMcpServerThatIsAway(t *testing.T) {
	t.Parallel()
	session := make(chan struct{}, 10)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: testkit.Patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what cannot be read is none of the below
		text := string(body)
		result := ""
		switch {
		case r.Method == http.MethodDelete:
			session <- struct{}{}
		case strings.Contains(text, `"initialize"`):
			w.Header().Set("Mcp-Session-Id", "one")
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case strings.Contains(text, `"tools/list"`):
			result = `{"tools":[{"name":"a.tool","inputSchema":{"type":"object"}}]}`
		case strings.Contains(text, `"tools/call"`):
			result = `{"content":[{"type":"text","text":"here"}]}`
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		default:
			w.WriteHeader(http.StatusAccepted)
		}
		if result == "" {
			return
		}
		_, id, _ := strings.Cut(text, `"id":`)
		id, _, _ = strings.Cut(id, ",")
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	dir := t.TempDir()
	tools := filepath.Join(dir, "tools")
	if err := os.Mkdir(tools, 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: idle}\nspec:\n  transport: http\n  endpoint: http://%s/mcp\n  idle_timeout: 300ms\n"+
		"---\napiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: away}\nspec:\n  transport: http\n  endpoint: http://127.0.0.1:%d/mcp\n  reconnect: {max_attempts: 2, backoff: 10ms}\n",
		listener.Addr(), freePort(t))
	if err := os.WriteFile(filepath.Join(tools, "servers.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := serveThere(t, dir)
	// It is tried again at a low rate, so it may have failed more often by now.
	testkit.Eventually(t, "the server that is away waits, and it is said why", func() bool {
		s := o.toolStatus("away")
		return s.State == "STOPPED" && strings.Contains(s.Reason, " failures in a row") && strings.Contains(s.Reason, "connection refused")
	})
	for range 2 {
		select {
		case <-session:
		case <-time.After(testkit.Patience):
			t.Fatal("the session does not end")
		}
		testkit.Eventually(t, "the server waits to be called", func() bool { return o.toolStatus("idle").State == "STOPPED" })
		if got := o.mustCall("idle--a-tool"); got != "here" {
			t.Errorf("a call gives %s", got)
		}
	}
}

// A hostile upstream that lists thousands of tools, names twice and schemas that
// are none, says without an end that they have changed, and changes them, harms
// neither Orla nor what else it serves.
func TestHostileMcpServer(t *testing.T) {
	t.Parallel()
	needs.Time(t, "waits for seconds")
	var lists atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what cannot be read is none of the below
		text := string(body)
		var result string
		switch {
		case r.Method == http.MethodGet:
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n")
			}
			return
		case strings.Contains(text, `"initialize"`):
			w.Header().Set("Mcp-Session-Id", "one")
			result = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}`
		case strings.Contains(text, `"tools/list"`):
			n := lists.Add(1)
			var b strings.Builder
			for i := range 3_000 {
				_, _ = fmt.Fprintf(&b, `{"name":"t_%d","description":"list %d","inputSchema":{"type":"object"}},`, i, n)
			}
			for i, schema := range []string{`"no"`, `5`, `null`, `[]`, `{"type":"string"}`, `{"type":"object","properties":5}`, `{"$ref":"file:///etc/passwd"}`, `{"type":"object","pattern":"("}`} {
				_, _ = fmt.Fprintf(&b, `{"name":"bad_%d","inputSchema":%s},`, i, schema)
			}
			result = `{"tools":[{"name":"last"},` + b.String() + `{"name":"t_1"},{"name":"t.1"},{"name":""},7,null]}`
		case strings.Contains(text, `"tools/call"`):
			result = `{"content":[{"type":"text","text":"here"}]}`
		default:
			w.WriteHeader(http.StatusAccepted)
			return
		}
		_, id, _ := strings.Cut(text, `"id":`)
		id, _, _ = strings.Cut(id, ",")
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	tools := t.TempDir()
	text := fmt.Sprintf("apiVersion: orloj.dev/v1\nkind: McpServer\nmetadata: {name: hostile}\nspec:\n  transport: http\n  endpoint: %s/mcp\n", server.URL)
	if err := os.WriteFile(filepath.Join(tools, "hostile.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, tools, "decent.sh", "#!/bin/sh\necho decent\n")
	o := serveOrla(t, tools)
	testkit.Eventually(t, "a tool of the server is called", func() bool {
		a, err := o.call("hostile--t-7", "{}")
		return err == nil && a.Result != nil && !a.Result.IsError && a.Result.Content[0].Text == "here"
	})
	testkit.Eventually(t, "the lists were asked for again", func() bool { return lists.Load() > 1 })
	for range 5 {
		if got := o.mustCall("decent"); got != "decent\n" {
			t.Errorf("decent answers %q", got)
		}
		if names := o.names(); having(names, "hostile--") == 0 { // of the first page
			t.Errorf("the tools are %.200s", names)
		}
	}
	if s := o.toolStatus("hostile"); s.State != "READY" || s.Restarts != 0 {
		t.Errorf("the server is %+v", s)
	}
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
}
