package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// goClient connects the Go SDK's client in the era of a protocol version.
func goClient(t *testing.T, o *running) *mcp.ClientSession {
	t.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: o.url}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // the server may be gone
	return session
}

func TestGoClientCallsATool(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "hello.sh", testkit.ReadFile(t, filepath.Join("..", "..", "..", "examples", "tools", "hello.sh")))
	o := serveOrla(t, tools)
	res, err := goClient(t, o).CallTool(t.Context(), &mcp.CallToolParams{Name: "hello", Arguments: map[string]any{"name": "Go"}})
	if err != nil || res.IsError {
		t.Fatalf("%+v, %v", res, err)
	}
	if text, ok := res.Content[0].(*mcp.TextContent); !ok || text.Text != "Hello, Go!\n" {
		t.Errorf("content = %+v", res.Content[0])
	}
}

// A1: an Orla without any tools serves, and picks them up as they appear.
func TestA1StartsWithoutAFolderAndServesWhatAppears(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := startOrla(t, dir, "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	o.waitLog("about the tools folder", func(l map[string]any) bool {
		return strings.Contains(fmt.Sprint(l["err"]), "chmod +x") || l["err"] != nil
	})
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "late.sh", "#!/bin/sh\necho late\n")
	testkit.Eventually(t, "the late tool answers", func() bool {
		a, err := o.call("late", "{}")
		return err == nil && a.Error == nil && a.Result.Content[0].Text == "late\n"
	})
}

// SPEC A2: one bad entry never keeps another from being served, and each is
// reported once.
func TestA2BadEntriesAreReportedAndTheRestIsServed(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "good.sh", "#!/bin/sh\necho good\n")
	testkit.WriteTool(t, tools, "zz/good.py", "#!/usr/bin/env python3\n")
	testkit.WriteTool(t, tools, "block.sh", "#!/bin/sh\n# /// tool\n# desciption: x\n# ///\n")
	testkit.WriteTool(t, tools, "interp.sh", "#!/usr/bin/env no-such-interpreter\n")
	if err := syscall.Mkfifo(filepath.Join(tools, "pipe"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"dangling": "nowhere", "leaves": "/bin/sh"} {
		if err := os.Symlink(target, filepath.Join(tools, name)); err != nil {
			t.Fatal(err)
		}
	}
	o := serveOrla(t, tools)
	if got := o.mustCall("good"); got != "good\n" {
		t.Errorf("good = %q", got)
	}
	for path, text := range map[string]string{
		"zz/good.py": "good.sh",
		"block.sh":   "description",
		"interp.sh":  "no-such-interpreter",
		"pipe":       "",
		"dangling":   "",
		"leaves":     "",
	} {
		fits := func(l map[string]any) bool {
			return strings.HasSuffix(fmt.Sprint(l["path"]), path) && strings.Contains(fmt.Sprint(l["err"]), text)
		}
		if n := o.count("a tool is not served", fits) + o.count("about the tools folder", fits); n != 1 {
			t.Errorf("%s is reported %d times; want once, with %q", path, n, text)
		}
	}
}

// SPEC H2: SIGHUP under load loses no call, and what did not change is kept.
func TestH2ReloadUnderLoadLosesNoCall(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "echo.sh", "#!/bin/sh\necho ok\n")
	o := serveOrla(t, tools)
	stop := make(chan struct{})
	var calls, lost atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		session := goClient(t, o)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				res, err := session.CallTool(context.Background(), &mcp.CallToolParams{Name: "echo"})
				calls.Add(1)
				if err != nil || res.IsError {
					lost.Add(1)
					t.Errorf("lost: %v %+v", err, res)
					return
				}
			}
		})
	}
	for i := range 30 {
		testkit.WriteTool(t, tools, fmt.Sprintf("t%d.sh", i%3), fmt.Sprintf("#!/bin/sh\necho %d\n", i))
		o.signal(syscall.SIGHUP)
		want := i + 1
		testkit.Eventually(t, "the reload is done", func() bool {
			return o.count("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" }) >= want
		})
		testkit.Eventually(t, "calls go on", func() bool { return calls.Load() >= int64(want) || t.Failed() })
	}
	close(stop)
	wg.Wait()
	t.Logf("%d calls over 30 reloads, %d lost", calls.Load(), lost.Load())
}

// SPEC H2: a configuration that does not parse changes nothing.
func TestH2ABadConfigurationChangesNothing(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "echo.sh", "#!/bin/sh\necho ok\n")
	config := filepath.Join(t.TempDir(), "orla.yaml")
	write := func(text string) {
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("tools_dir: " + tools + "\nport: 0\n")
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	write("tools_dir: " + tools + "\nprot: 1\ntimeout: [x]\n")
	o.signal(syscall.SIGHUP)
	line := o.waitLog("reload: the configuration has errors; keeping the previous one", nil)
	if text := fmt.Sprint(line["err"]); !strings.Contains(text, config+":2:1: prot") || !strings.Contains(text, `"port"`) || !strings.Contains(text, config+":3:") {
		t.Errorf("err = %s", text)
	}
	if got := o.mustCall("echo"); got != "ok\n" {
		t.Errorf("echo = %q", got)
	}
}

// SPEC H2: a new max_concurrent_calls holds for tools that did not change, and
// for calls that wait already.
func TestH2TheBoundOfCallsChanges(t *testing.T) {
	t.Parallel()
	tools, met := t.TempDir(), t.TempDir()
	testkit.WriteTool(t, tools, "meet.sh", "#!/bin/sh\n: > "+met+"/$ORLA_CALL_ID\nwhile [ $(ls "+met+" | wc -l) -lt 2 ]; do sleep 0.01; done\n")
	config := filepath.Join(t.TempDir(), "orla.yaml")
	write := func(bound int) {
		text := fmt.Sprintf("tools_dir: %s\nport: 0\ntimeout: 1m\nmax_concurrent_calls: %d\n", tools, bound)
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	const calls = 2
	failed := make(chan error, calls)
	for range calls {
		go func() {
			a, err := o.call("meet", "{}")
			if err == nil && (a.Result == nil || a.Result.IsError) {
				err = fmt.Errorf("%+v", a)
			}
			failed <- err
		}()
	}
	testkit.Eventually(t, "one of them runs", func() bool {
		entries, err := os.ReadDir(met)
		return err == nil && len(entries) == 1
	})
	write(calls)
	o.signal(syscall.SIGHUP)
	for range calls {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// SPEC H2: a new port is listened on before the old one is given up, and open
// connections stay.
func TestH2ThePortMoves(t *testing.T) { // not beside others: the end of an httptest.Server closes idle connections of all clients
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "echo.sh", "#!/bin/sh\necho ok\n")
	config := filepath.Join(t.TempDir(), "orla.yaml")
	write := func(port int) {
		if err := os.WriteFile(config, fmt.Appendf(nil, "tools_dir: %s\nport: %d\n", tools, port), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(freePort(t))
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	old := strings.TrimSuffix(strings.TrimPrefix(o.url, "http://"), "/mcp")
	session := goClient(t, o)
	next := freePort(t)
	write(next)
	o.signal(syscall.SIGHUP)
	o.url, _ = o.waitLog("listening elsewhere", nil)["url"].(string)
	if !strings.Contains(o.url, strconv.Itoa(next)) {
		t.Errorf("url = %s", o.url)
	}
	if got := o.mustCall("echo"); got != "ok\n" {
		t.Errorf("echo on the new port = %q", got)
	}
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo"}); err != nil {
		t.Errorf("a session from before the move: %v", err)
	}
	if conn, err := net.Dial("tcp", old); err == nil {
		_ = conn.Close()
		t.Error("the old port is still listened on")
	}
}

// SPEC H3: auto_reload: false leaves changes to SIGHUP.
func TestH3AutoReloadCanBeOff(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	config := filepath.Join(t.TempDir(), "orla.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "tools_dir: %s\nport: 0\nauto_reload: false\n", tools), 0o644); err != nil {
		t.Fatal(err)
	}
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	testkit.WriteTool(t, tools, "one.sh", "#!/bin/sh\necho one\n")
	o.signal(syscall.SIGHUP)
	o.waitLog("reload", func(l map[string]any) bool { return l["reason"] == "SIGHUP" && l["added"] == 1.0 })
	if n := o.count("reload", nil); n != 2 {
		t.Errorf("%d reloads; want the start and the SIGHUP", n)
	}
	o.mustCall("one")
}

// SPEC H4: SIGTERM lets calls in flight end, answers no new ones, exit code 0.
func TestH4SIGTERMLetsCallsEnd(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	fifo := filepath.Join(t.TempDir(), "gate")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, tools, "wait.sh", "#!/bin/sh\nread line < "+fifo+"\necho \"$line\"\n")
	o := serveOrla(t, tools)
	done := make(chan *answer, 1)
	go func() {
		a, err := o.call("wait", "{}")
		if err != nil {
			t.Error(err)
		}
		done <- a
	}()
	gate, err := os.OpenFile(fifo, os.O_WRONLY, 0) // waits for the tool to read
	if err != nil {
		t.Fatal(err)
	}
	o.signal(syscall.SIGTERM)
	if line := o.waitLog("stopping", nil); line["in_flight"] != 1.0 {
		t.Errorf("stopping: %v", line)
	}
	resp, err := http.Get(strings.TrimSuffix(o.url, "/mcp") + "/readyz")
	if err != nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz while draining: %v, %v", resp, err)
	} else {
		_ = resp.Body.Close()
	}
	if a, err := o.call("wait", "{}"); err != nil || a.Result == nil || a.Result.Meta["tool_code"] != "not_ready" || a.Result.Meta["retryable"] != true {
		t.Errorf("a new call while draining: %+v, %v", a, err)
	}
	if _, err := io.WriteString(gate, "in time\n"); err != nil {
		t.Fatal(err)
	}
	_ = gate.Close()
	if a := <-done; a == nil || a.Result == nil || a.Result.Content[0].Text != "in time\n" {
		t.Errorf("the call in flight: %+v", a)
	}
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d; want 0", code)
	}
	o.waitLog("stopped", nil)
}

// SPEC H4: a second signal ends at once, and nothing is left behind.
func TestH4ASecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	pids := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, tools, "stay.sh", "#!/bin/sh\ntrap '' TERM\nsleep 100 &\necho $$ $! > "+pids+"\nwait\nwait\n")
	o := serveOrla(t, tools)
	go func() { _, _ = o.call("stay", "{}") }() // it fails with the connection
	line, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	o.signal(syscall.SIGTERM)
	o.waitLog("stopping", nil)
	signalAgain(o)
	if code := o.wait(); code == 0 {
		t.Error("exit code 0 after a second signal")
	}
	for field := range strings.FieldsSeq(string(line)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "process "+field+" is gone", func() bool { return !alive(pid) })
	}
}

// signalAgain sends a second signal, again and again until it is not taken for one that was passed on.
func signalAgain(o *running) {
	o.t.Helper()
	testkit.Eventually(o.t, "a signal counts as the second", func() bool {
		_ = o.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		return o.count("a second signal; ending at once", nil) > 0
	})
}

// SPEC H4: also when the calls have ended and something else takes its time.
func TestH4ASecondSignalEndsWhatFollowsTheCalls(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	// Ignored before the fork: what is left ignores it from its first moment.
	testkit.WriteTool(t, tools, "leave.sh", "#!/bin/sh\ntrap '' TERM\nsh -c 'while :; do sleep 1; done' &\necho left\n")
	o := serveOrla(t, tools)
	if got := o.mustCall("leave"); got != "left\n" {
		t.Errorf("leave = %q", got)
	}
	o.signal(syscall.SIGTERM)
	o.waitLog("stopped", nil)
	signalAgain(o)
	if code := o.wait(); code != 1 {
		t.Errorf("exit code = %d; want 1", code)
	}
}

// kill -9 of Orla with a running tool that has a grandchild: nothing is left.
func TestKilledOrlaLeavesNothing(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	pids := filepath.Join(t.TempDir(), "pids")
	if err := syscall.Mkfifo(pids, 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, tools, "family.sh", "#!/bin/sh\nsleep 1000 &\nsetsid sleep 1000 &\necho $$ $! > "+pids+"\nwait\n")
	o := serveOrla(t, tools)
	go func() { _, _ = o.call("family", "{}") }() // it fails with the connection
	if _, err := os.ReadFile(pids); err != nil {
		t.Fatal(err)
	}
	ours := func() (n int) {
		found, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range found {
			if env, _ := os.ReadFile(path); bytes.Contains(env, []byte("ORLA_TOOL=family")) {
				n++
			}
		}
		return n
	}
	testkit.Eventually(t, "the whole family runs", func() bool { return ours() >= 3 })
	began := time.Now()
	o.signal(syscall.SIGKILL)
	testkit.Eventually(t, "the family is gone", func() bool { return ours() == 0 })
	t.Logf("all gone %s after kill -9", time.Since(began).Round(time.Millisecond))
}

// The error comes before any tool is read, so that nobody has to look for it.
func TestOccupiedPortIsOneClearError(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "hello"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	cmd := exec.Command(orlaBinary(t), "--port", port, "--tools-dir", tools)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != int(exit.Failed) || strings.Contains(string(out), "hello") || !strings.Contains(string(out), "127.0.0.1:"+port+" is in use") || !strings.Contains(string(out), "hint:") {
		t.Errorf("%v\n%s", err, out)
	}
}

// SPEC G1: on stdio everything that was read is answered before the end.
func TestG1StdioAnswersAllBeforeEOF(t *testing.T) {
	t.Parallel()
	tools := t.TempDir()
	testkit.WriteTool(t, tools, "slow.sh", "#!/bin/sh\nsleep 0.3\necho slow\n")
	cmd := exec.Command(orlaBinary(t), "--stdio", "--tools-dir", tools)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var in strings.Builder
	in.WriteString("\r\n\n" + `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\r\n")
	in.WriteString(`{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\r\n")
	in.WriteString("this is not JSON\n")
	for i := 1; i <= 5; i++ {
		fmt.Fprintf(&in, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow"}}`+"\n", i)
	}
	in.WriteString(`{"jsonrpc":"2.0","id":"u","method":"no/such"}`) // no newline at the end
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	answers := map[string]map[string]any{}
	scanner := bufio.NewScanner(bytes.NewReader(out))
	for scanner.Scan() {
		var m map[string]any
		if err := json.Unmarshal(scanner.Bytes(), &m); err != nil {
			t.Fatalf("stdout has %q, which is not JSON", scanner.Text())
		}
		answers[fmt.Sprint(m["id"])] = m
	}
	for i := range 6 {
		if answers[strconv.Itoa(i)]["result"] == nil {
			t.Errorf("request %d: %v", i, answers[strconv.Itoa(i)])
		}
	}
	for id, code := range map[string]float64{"<nil>": -32700, "u": -32601} {
		failure, _ := answers[id]["error"].(map[string]any)
		if failure["code"] != code {
			t.Errorf("id %s: %v; want code %v", id, answers[id], code)
		}
	}
}

// SPEC G8: the static bearer token, from a file.
func TestG8BearerToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	token := strings.Repeat("t0ken", 5)
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "orla.yaml")
	if err := os.WriteFile(config, []byte("port: 0\ntools_dir: tools\nauth:\n  tokens:\n    - name: ci\n      file: token\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	testkit.WriteTool(t, filepath.Join(dir, "tools"), "echo.sh", "#!/bin/sh\necho ok\n")
	o := startOrla(t, t.TempDir(), "--config", config)
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer " + token: 200} {
		req, err := http.NewRequest(http.MethodPost, o.url, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		if header != "" {
			req.Header.Set("Authorization", header)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(resp.Body) // what is missing is a failure
		_ = resp.Body.Close()
		if resp.StatusCode != want || header == "" && !strings.Contains(string(said), "send the header Authorization: Bearer TOKEN") {
			t.Errorf("%q: HTTP %d; want %d: %s", header, resp.StatusCode, want, said)
		}
	}
	if line := o.waitLog("call", nil); line["caller"] != "ci" {
		t.Errorf("caller = %v", line["caller"])
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, l := range o.lines {
		if raw, _ := json.Marshal(l); bytes.Contains(raw, []byte(token)) {
			t.Errorf("the token is in the log: %s", raw)
		}
	}
}

// SPEC G8: no listening beyond loopback without authentication.
func TestG8OpenListeningIsRefused(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(orlaBinary(t), "--listen", "0.0.0.0:0", "--tools-dir", t.TempDir())
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != int(exit.Invalid) || !strings.Contains(string(out), "--insecure") {
		t.Errorf("%v\n%s", err, out)
	}
}

// SPEC I1: the log goes to a file that is opened anew on SIGHUP.
func TestI1LogFileIsReopened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "orla.log")
	o := startOrla(t, dir, "--port", "0", "--log-file", path, "--tools-dir", dir)
	has := func(path, text string) func() bool {
		return func() bool {
			data, _ := os.ReadFile(path)
			return bytes.Contains(data, []byte(text))
		}
	}
	testkit.Eventually(t, "the log file has the start", has(path, `"msg":"serving"`))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	o.signal(syscall.SIGHUP)
	testkit.Eventually(t, "the new log file has the reload", has(path, `"reason":"SIGHUP"`))
	o.signal(syscall.SIGTERM)
	if code := o.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !has(path, `"msg":"stopped"`)() {
		t.Error("the stop is not in the new log file")
	}
}
