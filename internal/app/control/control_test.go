package control_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// patience bounds every wait of these tests.
const patience = time.Minute

func TestMain(m *testing.M) { leaks.Main(m) }

// backend is an Orla that has one capsule, weather, and a log.
type backend struct {
	mu       sync.Mutex
	operated []string
	lines    []json.RawMessage
	news     chan struct{} // closed when a line comes
	readers  int           // that follow
}

func newBackend() *backend {
	b := &backend{news: make(chan struct{})}
	for i := range 5 {
		b.add(fmt.Sprintf(`{"time":"2026-01-02T15:04:0%dZ","level":"info","msg":"call","tool":"weather","call_id":"%d"}`, i, i))
	}
	return b
}

func (b *backend) add(line string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, json.RawMessage(line))
	close(b.news)
	b.news = make(chan struct{})
}

func (b *backend) weather() control.ToolStatus {
	return control.ToolStatus{
		Name: "weather", Kind: "capsule", Version: "1.0.0", Source: "/tools/weather/tool.yaml", State: "READY",
		Since: time.Now(), Reason: "handshake complete", Pid: 42, Calls: 7,
	}
}

func (b *backend) Status() control.Status {
	sessions := 3
	return control.Status{
		Version: "v1.0.0", Pid: 1, Started: time.Now(), URL: "http://127.0.0.1:8080/mcp", ToolsDir: "/tools", Log: "stderr",
		Sessions: &sessions, Tools: []control.ToolStatus{b.weather()},
		Problems: []control.Problem{{Severity: "error", Path: "/tools/bad", Messages: []string{"is bad"}}},
	}
}

func (b *backend) Tool(name string) (control.ToolStatus, error) {
	if name != "weather" {
		return control.ToolStatus{}, fault.New(fault.UnsupportedTool, "there is no tool %q", name)
	}
	t := b.weather()
	t.Stderr = []string{"hello"}
	return t, nil
}

func (b *backend) Tools(context.Context) []control.ListedTool {
	return []control.ListedTool{{
		Name: "weather", Of: "weather", Kind: "capsule", Path: "/tools/weather/main", Source: "/tools/weather/tool.yaml",
		InputSchema: json.RawMessage(`{"type":"object"}`), Timeout: "30s",
	}}
}

func (b *backend) Manifest(name string) (control.Manifest, error) {
	t, err := b.Tool(name)
	return control.Manifest{Source: t.Source, Text: "name: weather\n"}, err
}

func (b *backend) Numbers() control.Numbers {
	return control.Numbers{Now: time.Unix(1, 0), Step: 10, Samples: []control.Sample{{At: time.Unix(0, 0), Calls: 1}}, Tools: []control.ToolNumbers{{Name: "weather", Samples: []control.ToolSample{}}}}
}

func (b *backend) AuditLog(n int) (control.AuditLog, error) {
	return control.AuditLog{Path: "/a", Lines: make([]control.AuditLine, n)}, nil
}

func (b *backend) VerifyAudit(context.Context) (control.AuditReport, error) {
	return control.AuditReport{Whole: true, Findings: []string{}, Notes: []string{}}, nil
}

func (b *backend) Packages() control.Packages {
	return control.Packages{Locks: []control.PackageLock{{File: "/l"}}, Packages: []control.Package{{Name: "p", Version: "1.0.0", Permissions: []string{}}}}
}

func (b *backend) ConsoleLink(context.Context, control.Peer) (control.ConsoleLink, error) {
	return control.ConsoleLink{URL: "http://127.0.0.1:8080/console/login#code", Expires: time.Now()}, nil
}

func (b *backend) Call(_ context.Context, by control.Caller, tool string, arguments json.RawMessage, client peer.Client) (json.RawMessage, error) {
	if tool == "asks" && client != nil {
		return asks(client, arguments)
	}
	if tool == "who" && client != nil {
		return json.RawMessage(fmt.Sprintf(`{"session":%q}`, client.Session())), nil
	}
	if tool == "many" && client != nil {
		return asksMany(client)
	}
	if tool != "weather" {
		return nil, fault.New(fault.UnsupportedTool, "there is no tool %q", tool)
	}
	if tool == "weather" && string(arguments) == `"who"` {
		return fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, by.Name), nil
	}
	text, err := json.Marshal(string(arguments))
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}]}`, text), err
}

func (b *backend) Operate(ctx context.Context, capsule string, action control.Action) error {
	switch capsule {
	case "cursed":
		panic("cursed")
	case "broken":
		return fault.New(fault.StartFailed, "it exited with code 1")
	case "slow":
		<-ctx.Done()
		return context.Cause(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.operated = append(b.operated, string(action)+" "+capsule)
	return nil
}

func (b *backend) Reload(context.Context, control.Peer, control.ReloadRequest) (control.Reload, error) {
	return control.Reload{
		Added: []string{"a"}, Removed: []string{}, Changed: []string{}, Kept: 1, Failed: map[string]string{"b": "why"}, Problems: []control.Problem{},
	}, nil
}

func (b *backend) Upgrade(_ context.Context, binary string) (control.Upgrade, error) {
	if binary == "/bad" {
		return control.Upgrade{}, &control.Error{Code: control.CodeRefused, Message: "it ended with 1"}
	}
	return control.Upgrade{Version: "2", Number: 1}, nil
}

func (b *backend) provider() control.PinnedProvider {
	return control.PinnedProvider{Name: "weather", Source: "/tools/weather/tool.yaml", Pin: "hold", File: "/state/pins/weather.json", Digest: "sha256:00", Items: []control.PinnedItem{{
		Kind: "tool", Name: "weather__now", Own: "now", State: "changed", Digest: "sha256:00", Was: "sha256:01", Accepted: time.Now(), By: "first list",
		PinDifference: control.PinDifference{Changes: []control.PinChange{{Path: "description", After: json.RawMessage(`"x"`)}}, More: 1, Before: json.RawMessage(`{}`), After: json.RawMessage(`{"description":"x"}`)},
		Findings:      []control.PinFinding{{Path: "description", Kind: "hidden_unicode", Text: "it has a tag"}},
	}}}
}

func (b *backend) Pins() control.PinList {
	return control.PinList{Providers: []control.PinnedProvider{b.provider(), {Name: "none", Pin: "warn"}}}
}

func (b *backend) Pinned(name string) (control.PinnedProvider, error) {
	if name != "weather" {
		return control.PinnedProvider{}, &control.Error{Code: control.CodeNotFound, Message: "nothing of that name is pinned"}
	}
	return b.provider(), nil
}

func (b *backend) ApprovePins(_ context.Context, by control.Peer, name string, asked control.PinApproval) (control.PinnedProvider, error) {
	switch p, err := b.Pinned(name); {
	case err != nil:
		return p, err
	case asked.Digest != "" && asked.Digest != p.Digest:
		return p, &control.Error{Code: control.CodeDigest, Message: "it is not what was shown"}
	default:
		p.Items[0].By = fmt.Sprint("uid ", by.UID)
		return p, nil
	}
}

func (b *backend) following(change int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers += change
}

func (b *backend) readersNow() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.readers
}

func (b *backend) Lines(ctx context.Context, q control.Query) (iter.Seq2[json.RawMessage, int], error) {
	return func(yield func(json.RawMessage, int) bool) {
		b.following(1)
		defer b.following(-1)
		b.mu.Lock()
		next := 0
		if q.Last > 0 {
			next = max(0, len(b.lines)-q.Last)
		}
		if q.Last < 0 {
			next = len(b.lines)
		}
		b.mu.Unlock()
		for {
			b.mu.Lock()
			lines, news := b.lines, b.news
			b.mu.Unlock()
			for ; next < len(lines); next++ {
				dropped := 0
				if strings.Contains(string(lines[next]), "after a gap") {
					dropped = 9
				}
				if !yield(lines[next], dropped) {
					return
				}
			}
			if !q.Follow {
				return
			}
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
		}
	}, nil
}

// served is a server that runs.
type served struct {
	*control.Server
	t      *testing.T
	socket string
	log    *testkit.Log
	stop   func() // and waits
}

// serve starts a server with a socket in a folder of its own.
func serve(t *testing.T, b control.Backend) *served {
	t.Helper()
	dir := t.TempDir() // before the server, which makes its files again while it serves
	s := start(t, b)
	s.point(filepath.Join(dir, "run", "orla.sock"))
	s.waitSocket()
	return s
}

// start starts a server without a socket.
func start(t *testing.T, b control.Backend) *served {
	t.Helper()
	log := &testkit.Log{}
	s := &served{t: t, log: log, Server: control.New(control.Options{
		Backend: b, MaxRequest: 1 << 10, Log: slog.New(slog.NewTextHandler(log, nil)),
	})}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx)
	}()
	s.stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(s.stop)
	return s
}

func (s *served) point(socket string) {
	s.socket = socket
	<-s.Point(unixsocket.Location{Socket: socket, Private: true}, unixsocket.Owner{Pid: os.Getpid(), URL: "http://here", ToolsDir: "/tools", Started: time.Now()})
}

func (s *served) waitSocket() {
	s.t.Helper()
	eventually(s.t, "the socket "+s.socket+" is served", func() bool { return s.Socket() == s.socket })
}

// request makes a request as any HTTP client would.
func (s *served) request(method, path, body string) (status, content, answer string) {
	s.t.Helper()
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", s.socket)
		},
	}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://orla"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return strconv.Itoa(resp.StatusCode), resp.Header.Get("Content-Type"), string(raw)
}

var eventually = testkit.Eventually

// Every error has the one shape, those that net/http would word itself too.
func TestJ2EveryErrorHasOneShape(t *testing.T) {
	s := serve(t, newBackend())
	for _, c := range []struct{ method, path, body, status, code string }{
		{"GET", "/", "", "404", "not_found"},
		{"GET", "/v2/status", "", "404", "not_found"},
		{"POST", "/v1/status", "", "405", "method_not_allowed"},
		{"GET", "/v1/reload", "", "405", "method_not_allowed"},
		{"GET", "/v1/status/absent", "", "404", "unsupported_tool"},
		{"POST", "/v1/capsules/broken/start", "", "409", "start_failed"},
		{"POST", "/v1/tools/weather/call", "[]", "400", "bad_request"},
		{"POST", "/v1/tools/weather/call", strings.Repeat(" ", 2<<10), "413", "too_large"},
		{"GET", "/v1/logs?n=-1", "", "400", "bad_request"},
		{"GET", "/v1/logs?since=yesterday", "", "400", "bad_request"},
		{"GET", "/v1/logs?follow=perhaps", "", "400", "bad_request"},
	} {
		status, content, body := s.request(c.method, c.path, c.body)
		var e control.Error
		err := json.Unmarshal([]byte(body), &e)
		if err != nil || status != c.status || content != "application/json" || e.Code != c.code || e.Message == "" {
			t.Errorf("%s %s: %s %s %s; want %s %s", c.method, c.path, status, content, body, c.status, c.code)
		}
	}
}

// A panic in one request is logged with its stack, and fails no other.
func TestJ2APanicFailsOneRequest(t *testing.T) {
	s := serve(t, newBackend())
	status, _, body := s.request("POST", "/v1/capsules/cursed/stop", "")
	if status != "500" || !strings.Contains(body, `"code":"internal"`) || strings.Contains(body, "cursed") {
		t.Errorf("%s %s", status, body)
	}
	if log := s.log.String(); !strings.Contains(log, "panic=cursed") || !strings.Contains(log, "stack=") {
		t.Errorf("the log: %s", log)
	}
	if status, _, _ := s.request("GET", "/v1/status", ""); status != "200" {
		t.Errorf("afterwards: %s", status)
	}
}

func TestJ2TheClientAsksAllThatTheServerAnswers(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	c, ctx := control.NewClient(s.socket), t.Context()
	if status, err := c.Status(ctx); err != nil || status.Tools[0].Name != "weather" || *status.Sessions != 3 {
		t.Errorf("Status: %+v, %v", status, err)
	}
	if tool, err := c.Tool(ctx, "weather"); err != nil || tool.Pid != 42 || len(tool.Stderr) != 1 {
		t.Errorf("Tool: %+v, %v", tool, err)
	}
	for _, odd := range []string{"a/b?c", ".", "..", "%2e"} {
		if tool, err := c.Tool(ctx, odd); err == nil || err.Error() != fmt.Sprintf("there is no tool %q", odd) {
			t.Errorf("Tool of an odd name: %+v, %v", tool, err)
		}
	}
	if tools, err := c.Tools(ctx); err != nil || len(tools) != 1 || string(tools[0].InputSchema) != `{"type":"object"}` {
		t.Errorf("Tools: %+v, %v", tools, err)
	}
	result, err := c.Call(ctx, "weather", control.CallRequest{Arguments: json.RawMessage(`{"digits":12345678901234567890}`)})
	if err != nil || !strings.Contains(string(result), `12345678901234567890`) {
		t.Errorf("Call: %s, %v", result, err)
	}
	for _, action := range []control.Action{control.Restart, control.Stop, control.Start} {
		if tool, err := c.Operate(ctx, "weather", action); err != nil || tool.Name != "weather" {
			t.Errorf("Operate: %+v, %v", tool, err)
		}
	}
	if got := strings.Join(b.operated, ", "); got != "restart weather, stop weather, start weather" {
		t.Errorf("operated: %s", got)
	}
	if diff, err := c.Reload(ctx, control.ReloadRequest{}); err != nil || diff.Failed["b"] != "why" {
		t.Errorf("Reload: %+v, %v", diff, err)
	}
	n := 0
	for line, err := range c.Logs(ctx, control.Query{Last: 3}) {
		if n++; err != nil || !json.Valid(line) {
			t.Errorf("line %d: %s, %v", n, line, err)
		}
	}
	if n != 3 {
		t.Errorf("%d lines; want the last 3", n)
	}
	for _, err := range c.Logs(ctx, control.Query{Tools: []string{"weather"}, Events: []string{"call", "state"}}) {
		if err != nil {
			t.Error(err)
		}
	}
}

// A stream passes on what comes, tells of what is missing, and ends with Orla.
func TestJ2AStreamFollowsUntilOrlaStops(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	lines := make(chan string)
	ended := make(chan error, 1)
	go func() {
		defer close(lines)
		for line, err := range control.NewClient(s.socket).Logs(context.Background(), control.Query{Last: 1, Follow: true}) {
			if err != nil {
				ended <- err
				return
			}
			lines <- string(line)
		}
		ended <- nil
	}()
	next := func() string {
		t.Helper()
		select {
		case line := <-lines:
			return line
		case <-time.After(patience):
			t.Fatal("no line comes")
		}
		return ""
	}
	if got := next(); !strings.Contains(got, `"call_id":"4"`) {
		t.Errorf("the last line = %s", got)
	}
	b.add(`{"msg":"state"}`)
	if got := next(); got != `{"msg":"state"}` {
		t.Errorf("the new line = %s", got)
	}
	b.add(`{"msg":"after a gap"}`)
	if got := next(); !strings.Contains(got, `"lines":9`) {
		t.Errorf("the gap = %s", got)
	}
	if got := next(); got != `{"msg":"after a gap"}` {
		t.Errorf("the line after the gap = %s", got)
	}
	s.stop()
	if err := <-ended; err != nil {
		t.Errorf("the stream ends with %v; want its end", err)
	}
}

// A client that is gone, or does not read, costs nothing and holds up nobody.
func TestJ2SlowAndGoneClientsCostNothing(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	gone, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(gone, "GET /v1/logs?follow=true HTTP/1.1\r\nHost: orla\r\n\r\n")
	if _, err := bufio.NewReader(gone).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	eventually(t, "one follows", func() bool { return b.readersNow() == 1 })
	_ = gone.Close()
	eventually(t, "nobody follows", func() bool { return b.readersNow() == 0 })

	deaf, err := net.Dial("unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	fmt.Fprintf(deaf, "GET /v1/logs?follow=true HTTP/1.1\r\nHost: orla\r\n\r\n")
	eventually(t, "one follows", func() bool { return b.readersNow() == 1 })
	long := `{"msg":"` + strings.Repeat("x", 64<<10) + `"}`
	for range 64 { // far more than the socket has room for
		b.add(long)
	}
	if _, err := control.NewClient(s.socket).Status(t.Context()); err != nil {
		t.Errorf("another client: %v", err)
	}
	began := time.Now()
	s.stop()
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the stop took %s", took)
	}
	if n := b.readersNow(); n != 0 {
		t.Errorf("%d follow after the stop", n)
	}
}

func TestJ2ManyClientsAtOnce(t *testing.T) {
	b := newBackend()
	s := serve(t, b)
	var clients sync.WaitGroup
	for range 64 {
		clients.Go(func() {
			c := control.NewClient(s.socket)
			for range 5 {
				if status, err := c.Status(t.Context()); err != nil || len(status.Tools) != 1 {
					t.Errorf("%+v, %v", status, err)
				}
				if _, err := c.Operate(t.Context(), "weather", control.Restart); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
	if len(b.operated) != 64*5 {
		t.Errorf("%d restarts; want %d", len(b.operated), 64*5)
	}
}

// More connections than there is room for wait, and are served in their turn.
func TestJ2ConnectionsHaveALimit(t *testing.T) {
	s := serve(t, newBackend())
	var idle []net.Conn
	for range 300 {
		conn, err := net.Dial("unix", s.socket)
		if err != nil {
			break // the kernel's queue is full
		}
		idle = append(idle, conn)
	}
	for _, conn := range idle {
		_ = conn.Close()
	}
	if _, err := control.NewClient(s.socket).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

// What a client waits for ends when the client does, and when Orla stops.
func TestJ2WaitingEndsWithTheClientAndWithOrla(t *testing.T) {
	s := serve(t, newBackend())
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	wait := func(ctx context.Context) {
		_, err := control.NewClient(s.socket).Operate(ctx, "slow", control.Restart)
		ended <- err
	}
	go wait(ctx)
	leave()
	if err := <-ended; err == nil {
		t.Error("an answer to a client that is gone")
	}
	go wait(context.Background())
	s.stop()
	if err := <-ended; err == nil {
		t.Error("an answer after the stop")
	}
}
