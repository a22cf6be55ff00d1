package program

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/internal/testing/testkit"
)

func mkfifo(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: mkfifo NAME")
	}
	ts.Check(syscall.Mkfifo(ts.MkAbs(args[0]), 0o755))
}

// exits runs a command whose stdout cannot be written, and wants its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	shell := append([]string{"-c", `code=$1; shift; "$@" >/dev/full; test $? -eq "$code"`, "sh"}, args...)
	ts.Check(ts.Exec("sh", shell...))
}

// waitlog waits for a line in a log file.
func waitlog(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: waitlog FILE PATTERN")
	}
	pattern, err := regexp.Compile(args[1])
	ts.Check(err)
	deadline := time.After(testkit.Patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		text, _ := os.ReadFile(ts.MkAbs(args[0])) // it may not be there yet
		if pattern.Match(text) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			ts.Fatalf("no line that has %s in:\n%s", args[1], text)
		}
	}
}

// plainBinary and racingBinary build the program once for all tests that start
// it as a whole: as make does, and with the race detector, from what "make test" has compiled.
var (
	plainBinary  = sync.OnceValues(func() (string, error) { return buildOrla([]string{"CGO_ENABLED=0"}, "-trimpath") })
	racingBinary = sync.OnceValues(func() (string, error) { return buildOrla([]string{"CGO_ENABLED=1"}, "-race", "-trimpath") })

	buildMu sync.Mutex // guards built
	built   []string   // the folders that TestMain removes
)

// detectsRaces reports whether the program is to look for races in itself: if these tests do, or with ORLA_TEST_RACE,
// which "make test" sets. It compiles the tests without, since they mostly wait for the program.
func detectsRaces() bool { return compiledForRaces || os.Getenv("ORLA_TEST_RACE") != "" }

func buildOrla(env []string, flags ...string) (string, error) {
	return goBuild("orla", "github.com/orla-project/orla/cmd/orla", env, flags...)
}

// goBuild builds the program of a package, and returns its path.
func goBuild(name, pkg string, env []string, flags ...string) (string, error) {
	dir, err := os.MkdirTemp("", "orla-test-*")
	if err != nil {
		return "", err
	}
	buildMu.Lock()
	built = append(built, dir)
	buildMu.Unlock()
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", slices.Concat([]string{"build", "-ldflags=-s -w", "-o", path}, flags, []string{pkg})...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return path, nil
}

// orlaBinary is the program. Quick tests do without those that start it: what it does in a shell is in the scripts,
// which are quick, and each part has tests of its own.
func orlaBinary(t *testing.T) string {
	t.Helper()
	needs.Time(t, "starts the program")
	path, err := plainBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// checkedBinary is the program with the race detector, if races are looked for.
// A race that it finds in itself fails the test (see startCommand).
func checkedBinary(t *testing.T) string {
	t.Helper()
	needs.Time(t, "starts the program")
	if !detectsRaces() {
		return orlaBinary(t)
	}
	path, err := racingBinary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// running is an Orla process.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	url  string // of /mcp; "" until it serves
	exit chan error

	mu    sync.Mutex // guards lines and news
	lines []map[string]any
	news  chan struct{} // closed when a line comes
}

// firstPort and ports are below those that systems give to connections and to
// who asks for any port, so that nobody takes one before the test does.
const firstPort, ports = 20000, 12000

var portsTaken atomic.Int64

// freePort returns a port that nothing listens on, and never the same again.
func freePort(t *testing.T) int {
	t.Helper()
	for range ports {
		port := firstPort + int(portsTaken.Add(1)+int64(os.Getpid()))%ports
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("every port is taken")
	return 0
}

// serveOrla starts Orla on a free port with the given tools folder and further variables of
// its environment, and waits until it serves. It is killed at the end of the test.
func serveOrla(t *testing.T, tools string, env ...string) *running {
	t.Helper()
	o := startPrepared(t, t.TempDir(), withEnv(env...), orlaBinary(t), "--tools-dir", tools, "--port", "0")
	o.url, _ = o.waitLog("serving", nil)["url"].(string)
	return o
}

// withEnv adds variables to the environment of a command.
func withEnv(env ...string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, env...) }
}

func startOrla(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	return startCommand(t, dir, append([]string{orlaBinary(t)}, args...)...)
}

// startCommand starts Orla by a command that becomes it, or has it as its child.
func startCommand(t *testing.T, dir string, argv ...string) *running {
	t.Helper()
	return startPrepared(t, dir, func(*exec.Cmd) {}, argv...)
}

// startPrepared starts Orla by a command that prepare may change.
func startPrepared(t *testing.T, dir string, prepare func(*exec.Cmd), argv ...string) *running {
	t.Helper()
	o := &running{t: t, exit: make(chan error, 1), news: make(chan struct{})}
	o.cmd = exec.Command(argv[0], argv[1:]...)
	o.cmd.Dir = dir
	o.cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	prepare(o.cmd)
	stderr, err := o.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		o.readLog(stderr)
	}()
	go func() {
		<-read
		o.exit <- o.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = o.cmd.Process.Kill() // it may be over
		<-read
		o.mu.Lock()
		defer o.mu.Unlock()
		o.tellRaces()
		if t.Failed() {
			lines := slices.DeleteFunc(slices.Clone(o.lines), func(l map[string]any) bool { return l["msg"] == "call" && l["ok"] == true })
			for _, l := range lines[max(0, len(lines)-40):] {
				raw, _ := json.Marshal(l)
				t.Logf("log: %s", raw)
			}
		}
	})
	return o
}

// tellRaces fails the test for each data race that Orla has found in itself.
func (o *running) tellRaces() {
	racing := false
	for _, l := range o.lines {
		text, isText := l["text"].(string)
		if isText && l["msg"] == nil && text == "WARNING: DATA RACE" {
			racing = true
		}
		if racing {
			o.t.Error(text)
		}
		racing = racing && !strings.HasPrefix(text, "======")
	}
}

func (o *running) readLog(r io.Reader) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 16<<20)
	for scanner.Scan() {
		var line map[string]any
		if json.Unmarshal(scanner.Bytes(), &line) != nil {
			line = map[string]any{"text": scanner.Text()}
		}
		o.mu.Lock()
		o.lines = append(o.lines, line)
		close(o.news)
		o.news = make(chan struct{})
		o.mu.Unlock()
	}
}

// waitLog waits for a log line with the message msg that fits, and returns it.
// A nil fits takes any.
func (o *running) waitLog(msg string, fits func(map[string]any) bool) map[string]any {
	o.t.Helper()
	return o.follow().next(msg, fits)
}

// follower reads the log line by line, so that what it returns came after what
// it returned before.
type follower struct {
	o    *running
	seen int
}

// follow returns a follower of the log from its first line.
func (o *running) follow() *follower { return &follower{o: o} }

// next waits for the next line with the message msg that fits.
func (f *follower) next(msg string, fits func(map[string]any) bool) map[string]any {
	o := f.o
	o.t.Helper()
	deadline := time.After(testkit.Patience)
	for {
		o.mu.Lock()
		lines, news := o.lines, o.news
		o.mu.Unlock()
		for f.seen < len(lines) {
			line := lines[f.seen]
			f.seen++
			if line["msg"] == msg && (fits == nil || fits(line)) {
				return line
			}
		}
		select {
		case <-news:
		case err := <-o.exit:
			o.exit <- err
			o.mu.Lock()
			done := len(o.lines) == f.seen
			o.mu.Unlock()
			if done {
				o.t.Fatalf("Orla ended (%v) without the log line %q; last: %v", err, msg, last(lines))
			}
		case <-deadline:
			o.t.Fatalf("no log line %q; last: %v", msg, last(lines))
		}
	}
}

func last(lines []map[string]any) any {
	if len(lines) == 0 {
		return nil
	}
	return lines[len(lines)-1]
}

// count returns how many log lines have the message msg and fit.
func (o *running) count(msg string, fits func(map[string]any) bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := 0
	for _, l := range o.lines {
		if l["msg"] == msg && (fits == nil || fits(l)) {
			n++
		}
	}
	return n
}

func (o *running) signal(sig os.Signal) {
	o.t.Helper()
	if err := o.cmd.Process.Signal(sig); err != nil {
		o.t.Fatal(err)
	}
}

// wait waits for the end and returns the exit code.
func (o *running) wait() int {
	o.t.Helper()
	select {
	case err := <-o.exit:
		o.exit <- err
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode()
		}
		if err != nil {
			o.t.Fatal(err)
		}
		return 0
	case <-time.After(testkit.Patience):
		o.t.Fatal("Orla does not end")
	}
	return -1
}

// answer is what a call without a session gave.
type answer struct {
	Result *struct {
		Content []struct {
			Type string `json:"type"`
			Text string `json:"text"`
		} `json:"content"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		IsError           bool            `json:"isError"`
		Meta              map[string]any  `json:"_meta"`
		Tools             []struct {
			Name string `json:"name"`
		} `json:"tools"`
		NextCursor string `json:"nextCursor"`
	} `json:"result"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// post sends one JSON-RPC request without a session, as curl would.
func (o *running) post(method, params string) (*answer, error) {
	return o.postWithin(context.Background(), method, params)
}

// postWithin is post by a client that hangs up when ctx ends.
func (o *running) postWithin(ctx context.Context, method, params string) (*answer, error) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(raw) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			raw = data
		}
	}
	var a answer
	if err := json.Unmarshal(raw, &a); err != nil {
		return nil, fmt.Errorf("HTTP %d: %w in %.200q", resp.StatusCode, err, raw)
	}
	return &a, nil
}

// call calls a tool without a session.
func (o *running) call(name, args string) (*answer, error) {
	return o.post("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, args))
}

// mustCall calls a tool without arguments and returns the text of its first block.
func (o *running) mustCall(name string) string {
	o.t.Helper()
	a, err := o.call(name, "{}")
	switch {
	case err != nil:
		o.t.Fatal(err)
	case a.Error != nil:
		o.t.Fatalf("call %s: %+v", name, a.Error)
	case a.Result.IsError || len(a.Result.Content) == 0:
		o.t.Fatalf("call %s: %+v", name, a.Result)
	}
	return a.Result.Content[0].Text
}

// waitListed waits until clients see a tool: the line "offers" stands in the log
// a moment before.
func (o *running) waitListed(name string) {
	o.t.Helper()
	testkit.Eventually(o.t, name+" is listed", func() bool {
		a, err := o.post("tools/list", "{}")
		if err != nil || a.Result == nil {
			return false
		}
		for _, tool := range a.Result.Tools {
			if tool.Name == name {
				return true
			}
		}
		return false
	})
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
