package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/testing/needs"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

func TestG6HealthAndReadiness(t *testing.T) {
	var starting atomic.Pointer[[]string]
	starting.Store(&[]string{"db"})
	w := newWorld(t, func(o *mcpbridge.Options) { o.Starting = func() []string { return *starting.Load() } })
	f := w.front(t, httpfront.Settings{})
	check := func(path string, status int, part string) {
		t.Helper()
		if r := f.send(t, http.MethodGet, path, ""); r.status != status || !strings.Contains(r.raw, part) {
			t.Errorf("%s: %d %s; want %d with %s", path, r.status, r.raw, status, part)
		}
	}
	check("/healthz", 200, "ok")
	check("/readyz", 503, `"waiting_for":["db"]`)
	starting.Store(&[]string{})
	check("/readyz", 200, `"tools":1`)
	f.Drain()
	check("/readyz", 503, "draining")
	check("/healthz", 200, "ok")
	if r := f.send(t, http.MethodPost, "/healthz", "{}"); r.status != http.StatusMethodNotAllowed {
		t.Errorf("POST /healthz: %d", r.status)
	}
	if r := f.send(t, http.MethodGet, "/", ""); r.status != http.StatusNotFound {
		t.Errorf("GET /: %d", r.status)
	}
}

// lateLog is a log that takes the line of a call only when it is opened.
type lateLog struct {
	slog.Handler
	open chan struct{}
}

func (l lateLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "call" {
		<-l.open
	}
	return l.Handler.Handle(ctx, r)
}

// SPEC L1: the client of the only call does not wait until the call is logged.
func TestL1AnAnswerDoesNotWaitForTheLog(t *testing.T) {
	open := make(chan struct{})
	w := newWorld(t, func(o *mcpbridge.Options) { o.Log = slog.New(lateLog{o.Log.Handler(), open}) })
	f := w.front(t, httpfront.Settings{})
	got := make(chan reply, 1)
	session := f.initialize(t)
	go func() { got <- f.post(t, call(1, "echo"), "Mcp-Session-Id", session) }()
	defer close(open)
	if r := within(t, got, "answer"); r.failed {
		t.Error(r.raw)
	}
}

// SPEC H4: what ended within the grace is answered, though sessions close right then.
func TestG6LastAnswersGetOut(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	w.answer("echo", g.answer)
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) { h.Limits.Answers = patience })
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	for round := range 20 {
		session := f.initialize(t)
		got := make(chan reply, 2)
		go func() { got <- f.post(t, call(1, "echo"), "Mcp-Session-Id", session) }()
		go func() { got <- f.post(t, body, headers...) }()
		calls := 2
		var stream *rawSSE
		if round == 19 { // the last only, since ending a stream takes time too
			stream = f.openSSE(t)
			stream.post(t, initialize("2024-11-05"))
			stream.next(t)
			stream.post(t, call(1, "echo"))
			calls++
		}
		for range calls {
			within(t, g.began, "call")
		}
		for range calls {
			g.open <- struct{}{}
		}
		f.CloseSessions()
		for range 2 {
			if r := within(t, got, "answer"); r.failed || !strings.Contains(string(r.result), "let through") {
				t.Errorf("%d %s", r.status, r.raw)
			}
		}
		if stream != nil {
			if r := stream.next(t); r.failed || !strings.Contains(string(r.result), "let through") {
				t.Errorf("the stream: %s", r.raw)
			}
		}
	}
}

func TestG7BodiesAreBounded(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{MaxRequest: 1000})
	stream := f.openSSE(t)
	long := call(1, "echo") + strings.Repeat(" ", 1000)
	for _, path := range []string{"/mcp", stream.endpoint} {
		if r := f.send(t, http.MethodPost, path, long); r.status != http.StatusRequestEntityTooLarge || !r.failed || r.header.Get("Connection") != "" && !strings.EqualFold(r.header.Get("Connection"), "close") {
			t.Errorf("%s with a length: %d %s", path, r.status, r.raw)
		}
		res := f.open(t, http.MethodPost, path, io.MultiReader(strings.NewReader(long))) // chunked
		if res.status != http.StatusRequestEntityTooLarge || !res.last {
			t.Errorf("%s in chunks: %d, close %v", path, res.status, res.last)
		}
		_ = res.body.Close()
	}
	f.Configure(httpfront.Settings{MaxRequest: 5000, Loopback: true})
	if r := f.post(t, long); r.failed {
		t.Errorf("after the limit was raised: %s", r.raw)
	}
}

func TestG7ASlowBodyIsGivenUp(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{MaxRequest: 1000}, func(h *httpfront.Front) {
		setLimits(h, 20*time.Millisecond, time.Minute, time.Minute)
	})
	for name, c := range map[string]struct {
		headers string
		status  int
	}{
		"slow":               {"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 100", http.StatusRequestTimeout},
		"slow chunks":        {"Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked", http.StatusRequestTimeout},
		"too large":          {"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: 2000", http.StatusRequestEntityTooLarge},
		"refused, with body": {"Host: evil.example\r\nContent-Length: 100", http.StatusForbidden},
	} {
		conn := dial(t, f.addr())
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\n%s\r\nAccept: */*\r\n\r\n", c.headers)
		reader := bufio.NewReader(conn)
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if res.StatusCode != c.status {
			t.Errorf("%s: %d; want %d", name, res.StatusCode, c.status)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if _, err := io.Copy(io.Discard, reader); err != nil {
			t.Errorf("%s: the connection: %v; want its end", name, err)
		}
	}
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

// impatient accepts connections whose deadlines for writing pass when a test says so.
type impatient struct {
	net.Listener

	accepted chan *hasty
}

func (l impatient) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	h := &hasty{Conn: conn}
	l.accepted <- h
	return h, nil
}

type hasty struct {
	net.Conn

	set atomic.Bool // it has had a deadline
}

func (h *hasty) SetWriteDeadline(at time.Time) error {
	if at.IsZero() {
		return nil // net/http lifts it, at a moment that no test knows
	}
	h.set.Store(true)
	return h.Conn.SetWriteDeadline(at)
}

// pass has its deadline pass, and reports whether there is one.
func (h *hasty) pass() bool {
	return h.set.Load() && h.Conn.SetWriteDeadline(time.Unix(1, 0)) == nil
}

// A connection that is kept must not carry the deadline of its last response.
func TestG7AKeptConnectionIsUsedAfterItsDeadline(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{})
	session := f.initialize(t)
	l := impatient{listen(t), make(chan *hasty, 1)}
	serveOn(t, l, f)
	conn := dial(t, l.Addr().String())
	kept := within(t, l.accepted, "connection")
	reader := bufio.NewReader(conn)
	for range 3 {
		body := `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(body), body)
		res, err := http.ReadResponse(reader, nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusAccepted {
			t.Fatalf("got %d", res.StatusCode)
		}
		if !kept.pass() {
			t.Error("the response had no deadline")
		}
	}
}

func TestG7AClientThatDoesNotReadIsLeft(t *testing.T) {
	w := newWorld(t, func(o *mcpbridge.Options) { o.MaxInline = 64 << 20 })
	w.gives(text(strings.Repeat("x", 12<<20)), nil)
	ended := make(chan struct{})
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) {
		setLimits(h, time.Minute, 50*time.Millisecond, time.Minute)
	})
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		f.ServeHTTP(rw, r)
		close(ended)
	})
	l := listen(t)
	serveOn(t, l, handler)
	conn := dial(t, l.Addr().String())
	body := call(1, "echo")
	fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: */*\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	within(t, ended, "end of the handler")
}

// listen listens on a port of its own.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// serveOn serves a handler for as long as the test.
func serveOn(t *testing.T, l net.Listener, handler http.Handler) {
	server := &http.Server{Handler: handler}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
}

func TestG7IdleSessionsExpire(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	idle, listening, working := f.initialize(t), f.initialize(t), f.initialize(t)
	f.open(t, http.MethodGet, "/mcp", nil, "Mcp-Session-Id", listening)
	g := newGate()
	w.answer("echo", g.answer)
	got := make(chan reply, 1)
	go func() { got <- f.post(t, call(1, "echo"), "Mcp-Session-Id", working) }()
	within(t, g.began, "call")

	f.Expire(time.Hour)
	if r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", idle); r.failed {
		t.Fatalf("before its time: %s", r.raw)
	}
	f.Expire(-time.Second)
	eventually(t, "the idle session has expired", func() bool {
		return f.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", idle).status == http.StatusNotFound
	})
	if r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", listening); r.failed {
		t.Errorf("a session with an open stream expired: %s", r.raw)
	}
	close(g.open)
	if r := within(t, got, "answer"); r.failed {
		t.Errorf("a session with a call in flight expired: %s", r.raw)
	}
	// What a stranger invents is forgotten at once, as is what was deleted.
	before := f.Sessions()
	for i := range 10 {
		f.post(t, call(1, "echo"), "Mcp-Session-Id", fmt.Sprint("made-up", i))
		f.send(t, http.MethodGet, "/mcp", "", "Mcp-Session-Id", fmt.Sprint("made-up", i))
		f.send(t, http.MethodPut, "/mcp", "", "Mcp-Session-Id", fmt.Sprint("not-allowed", i))
		f.post(t, call(1, "echo"), "Mcp-Session-Id", fmt.Sprint("no-version", i), "Mcp-Protocol-Version", "1999-01-01")
		body, headers := newEra("tools/call", "echo", `"name":"echo"`)
		f.post(t, body, append(headers, "Mcp-Session-Id", fmt.Sprint("stateless", i))...)
	}
	f.send(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", working)
	eventually(t, fmt.Sprintf("%d sessions are known", before-1), func() bool { return f.Sessions() == before-1 })
}

func TestG7TheLongestIdleMakesRoom(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: 3})
	ping := func(id string) int {
		return f.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", id).status
	}
	first, second, third := f.initialize(t), f.initialize(t), f.initialize(t)
	ping(first)
	fourth := f.initialize(t)
	eventually(t, "the longest idle is gone", func() bool { return ping(second) == http.StatusNotFound })
	for _, id := range []string{first, third, fourth} {
		if status := ping(id); status != http.StatusOK {
			t.Errorf("another one: %d", status)
		}
	}
}

// Whoever floods makes room for itself, and takes no session from others.
func TestG7AFloodTakesNoSessionOfOthers(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: 20})
	named := func(name string) reply {
		return f.post(t, strings.Replace(initialize("2025-11-25"), `"name":"t"`, `"name":"`+name+`"`, 1))
	}
	var others []string
	for i := range 4 {
		others = append(others, named(fmt.Sprint("other", i/2)).header.Get("Mcp-Session-Id"))
	}
	var last string
	for range 200 {
		r := named("flood")
		if last = r.header.Get("Mcp-Session-Id"); r.status != http.StatusOK {
			t.Fatalf("the flood is refused, whose own sessions make room: %d %s", r.status, r.raw)
		}
	}
	for _, id := range append(others, last) {
		if r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", id); r.failed {
			t.Errorf("a session is lost: %d %s", r.status, r.raw)
		}
	}
}

// Where nobody has more than a share of the sessions, nobody loses one: who
// comes then is told when to try again.
func TestG7WhoFindsNoRoomIsToldSo(t *testing.T) {
	const most = 10
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: most})
	named := func(i int) reply {
		return f.post(t, strings.Replace(initialize("2025-11-25"), `"name":"t"`, fmt.Sprintf(`"name":"client%d"`, i), 1))
	}
	var ids []string
	for i := range most {
		ids = append(ids, named(i).header.Get("Mcp-Session-Id"))
	}
	r := named(most)
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") != "30" || !r.failed || r.header.Get("Mcp-Session-Id") != "" ||
		!strings.Contains(r.raw, `"id":0`) || !strings.Contains(r.raw, `"tool_code":"not_ready"`) || !strings.Contains(r.raw, `"retry_after_ms":30000`) {
		t.Errorf("one too many: %d %v %s", r.status, r.header, r.raw)
	}
	if r := f.send(t, http.MethodGet, "/sse", ""); r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" {
		t.Errorf("one too many over SSE: %d %s", r.status, r.raw)
	}
	for _, id := range ids {
		if r := f.post(t, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Mcp-Session-Id", id); r.failed {
			t.Errorf("a session is lost: %d %s", r.status, r.raw)
		}
	}
	f.send(t, http.MethodDelete, "/mcp", "", "Mcp-Session-Id", ids[0])
	if r := named(most); r.failed {
		t.Errorf("after one has left: %d %s", r.status, r.raw)
	}
}

// flood has eight clients begin so many sessions each, of which none is refused.
func (f *front) flood(t *testing.T, each int) {
	t.Helper()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range each {
				if r := f.post(t, initialize("2025-11-25")); r.status != http.StatusOK {
					t.Errorf("%d %s", r.status, r.raw)
				}
			}
		})
	}
	wg.Wait()
}

func TestG7AFloodStaysBounded(t *testing.T) {
	const most = 100
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: most})
	before := runtime.NumGoroutine()
	f.flood(t, 250)
	if n := f.Sessions(); n > most {
		t.Errorf("%d sessions; want %d at most", n, most)
	}
	f.CloseSessions()
	f.client.CloseIdleConnections()
	eventually(t, "goroutines are back", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// Room that a session has made is nobody else's: each of those that begin at
// once takes what it made, and none is refused.
func TestG7RoomIsMadeForEach(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: 24})
	f.flood(t, 100)
}

// Where sessions have to make room, a call in one is answered or refused: it does
// not run in one that ends under it.
func TestG7ACallWhereSessionsMakeRoom(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: 20})
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			for range needs.Rounds(5, 15) {
				id := f.post(t, initialize("2025-11-25")).header.Get("Mcp-Session-Id")
				for range 3 {
					if r := f.post(t, call(1, "echo"), "Mcp-Session-Id", id); r.result == nil && r.status != http.StatusNotFound {
						t.Errorf("%d %v %q", r.status, r.header, r.raw)
					}
				}
			}
		})
	}
	wg.Wait()
}

// The same of a session that was idle for too long, while it is being closed.
func TestG7ACallInASessionThatExpires(t *testing.T) {
	w := newWorld(t)
	h := httpfront.New(w.bridge, httpfront.Settings{Loopback: true}) // nobody runs its Serve, which closes
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		h.CloseSessions()
		server.CloseClientConnections()
		server.Close()
	})
	f := &front{h, server.URL, server.Client()}
	id := f.initialize(t)
	h.Expire(-time.Hour)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if r := f.open(t, method, "/mcp", nil, "Mcp-Session-Id", id); r.status != http.StatusNotFound {
			t.Errorf("%s: %d", method, r.status)
		}
	}
	for _, body := range []string{call(1, "echo"), `{"jsonrpc":"2.0","id":2,"method":"ping"}`} {
		if r := f.post(t, body, "Mcp-Session-Id", id); r.status != http.StatusNotFound {
			t.Errorf("%s: %d %s; want 404, upon which clients begin anew", body, r.status, r.raw)
		}
	}
}

// There are no more streams of 2024-11-05 than sessions may be, however many begin at once.
func TestG7StreamsAreCounted(t *testing.T) {
	f := newWorld(t).front(t, httpfront.Settings{MaxSessions: 5})
	for range 20 {
		open := make(chan *opened, 40)
		for range cap(open) {
			go func() { open <- f.open(t, http.MethodGet, "/sse", nil) }()
		}
		n := 0
		for range cap(open) {
			if o := <-open; o.status == http.StatusOK {
				n++
				defer func() { _ = o.body.Close() }()
			}
		}
		if n != 5 {
			t.Fatalf("%d streams; want 5", n)
		}
		f.CloseSessions()
		eventually(t, "they are gone", func() bool { return f.Sessions() == 0 })
	}
}

func TestG7ManyStreamsAtOnce(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{})
	before := runtime.NumGoroutine()
	var open []*opened
	body, headers := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
	for range 100 {
		open = append(open, f.open(t, http.MethodGet, "/sse", nil),
			f.open(t, http.MethodGet, "/mcp", nil, "Mcp-Session-Id", f.initialize(t)),
			f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...))
	}
	w.set(tool("echo"), tool("more"))
	for i, res := range open {
		if i%3 == 0 {
			continue // not initialized
		}
		scan := bufio.NewScanner(res.body)
		found := false
		for !found && scan.Scan() {
			found = strings.Contains(scan.Text(), "notifications/tools/list_changed")
		}
		if !found {
			t.Fatalf("stream %d heard nothing: %v", i, scan.Err())
		}
	}
	for _, res := range open {
		_ = res.body.Close()
	}
	f.CloseSessions()
	f.client.CloseIdleConnections()
	eventually(t, "goroutines are back", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// lines scans a response. There is one scanner for each, since it reads ahead.
func (o *opened) lines() *bufio.Scanner {
	scan := bufio.NewScanner(o.body)
	scan.Buffer(nil, 16<<20)
	return scan
}

// comments scans a stream for as many keep-alive comments and data lines.
func comments(t *testing.T, scan *bufio.Scanner, wantComments, wantData int) {
	t.Helper()
	for wantComments > 0 || wantData > 0 {
		if !scan.Scan() {
			t.Fatalf("the stream ended: %v", scan.Err())
		}
		switch line := scan.Text(); {
		case line == ": keep-alive":
			wantComments--
		case line == "data: ": // it only has an id
		case strings.HasPrefix(line, "data: "):
			wantData--
			if strings.HasPrefix(line, "data: {") && !json.Valid([]byte(line[6:])) {
				t.Fatalf("a broken event: %.100s", line)
			}
		case line == "", line == ": ok", strings.HasPrefix(line, "event: "), strings.HasPrefix(line, "id: "):
		default:
			t.Fatalf("a broken line: %.100q", line)
		}
	}
}

func TestKeepAliveOnEveryStream(t *testing.T) {
	w := newWorld(t)
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) {
		setLimits(h, time.Minute, time.Minute, time.Millisecond)
	})
	get := f.open(t, http.MethodGet, "/mcp", nil, "Mcp-Session-Id", f.initialize(t)).lines()
	body, headers := newEra("subscriptions/listen", "", `"notifications":{"toolsListChanged":true}`)
	listen := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...).lines()
	sse := f.open(t, http.MethodGet, "/sse", nil).lines()
	comments(t, get, 3, 0)
	comments(t, listen, 3, 1)
	comments(t, sse, 3, 1)
	w.set(tool("echo"), tool("new"))
	comments(t, get, 3, 1)
	comments(t, listen, 3, 1)
}

// A call that takes its time must not look dead: clients give up on a response
// whose headers do not come.
func TestKeepAliveOfALongCall(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	w.answer("echo", g.answer)
	f := w.front(t, httpfront.Settings{}, func(h *httpfront.Front) {
		setLimits(h, time.Minute, time.Minute, time.Millisecond)
	})
	body, headers := newEra("tools/call", "echo", `"name":"echo"`)
	stateful := f.open(t, http.MethodPost, "/mcp", strings.NewReader(call(1, "echo")), "Mcp-Session-Id", f.initialize(t))
	modern := f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...)
	var streams []*bufio.Scanner
	for _, res := range []*opened{stateful, modern} {
		if res.status != http.StatusOK || res.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("%d %s", res.status, res.header.Get("Content-Type"))
		}
		streams = append(streams, res.lines())
		comments(t, streams[len(streams)-1], 2, 0)
	}
	close(g.open)
	for _, stream := range streams {
		comments(t, stream, 0, 1)
	}

	// An answer that would have been a JSON body comes as an event now.
	w.answer("echo", func(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
		g.began <- struct{}{}
		<-g.began // the test's
		return text(strings.Repeat("x", 1<<20)), nil
	})
	g.began = make(chan struct{})
	res := make(chan *opened, 1)
	go func() { res <- f.open(t, http.MethodPost, "/mcp", strings.NewReader(body), headers...) }()
	<-g.began
	large := within(t, res, "headers")
	g.began <- struct{}{}
	comments(t, large.lines(), 0, 1)
}

// SPEC G7 and the transport's rules: in the stateless era, leaving cancels; in
// the older ones it does not.
func TestLeavingCancelsInTheStatelessEraOnly(t *testing.T) {
	w := newWorld(t)
	g := newGate()
	ended := make(chan error, 2)
	w.answer("echo", func(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error) {
		res, err := g.answer(ctx, args)
		ended <- err
		return res, err
	})
	f := w.front(t, httpfront.Settings{})
	leave := func(body string, headers []string) {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		for i := 0; i < len(headers); i += 2 {
			req.Header.Set(headers[i], headers[i+1])
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if res, err := f.client.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		}()
		within(t, g.began, "call")
		cancel()
		<-done
	}
	leave(newEra("tools/call", "echo", `"name":"echo"`))
	if err := within(t, ended, "end"); err == nil {
		t.Error("the call of the stateless era went on")
	}
	leave(call(1, "echo"), []string{"Mcp-Session-Id", f.initialize(t)})
	close(g.open)
	if err := within(t, ended, "end"); err != nil {
		t.Errorf("the older era's call was cancelled: %v", err)
	}
}
