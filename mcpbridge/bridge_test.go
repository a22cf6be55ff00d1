package mcpbridge_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/leaks"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

func TestMain(m *testing.M) {
	leaks.Main(m)
}

// patience is how long a test waits for what must come.
const patience = time.Minute

// answer is what a tool of a test does.
type answer func(ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error)

// rawAnswer is what a peer's tool of a test does.
type rawAnswer func(ctx context.Context, call peer.Call) (json.RawMessage, error)

// catalog is a Catalog whose tools a test gives.
type catalog struct {
	inFlight map[*context.CancelCauseFunc]turns.Owner // guarded by mu
	mu       sync.Mutex                               // guards the fields that follow
	now      *supervisor.Catalog
	changed  chan struct{}
	answers  map[string]answer
	raws     map[string]rawAnswer
	offers   func(*supervisor.Catalog) // adds to what is listed; may be nil
	updated  chan string
	attempts int // that each call took

	requested func(peer.Request) error // answers requests other than calls; may be nil
}

func newCatalog() *catalog {
	c := &catalog{answers: map[string]answer{}, raws: map[string]rawAnswer{}, updated: make(chan string)}
	c.set()
	return c
}

// set makes tools the ones that are listed.
func (c *catalog) set(tools ...*mcp.Tool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.changed
	c.changed = make(chan struct{})
	c.now = &supervisor.Catalog{Tools: tools, Changed: c.changed}
	if c.offers != nil {
		c.offers(c.now)
	}
	if old != nil {
		close(old)
	}
}

func (c *catalog) answer(name string, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answers[name] = a
}

// raw makes a tool one of a peer's.
func (c *catalog) raw(name string, a rawAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raws[name] = a
}

func (c *catalog) Catalog() *supervisor.Catalog {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *catalog) RequestOf(ctx context.Context, p supervisor.Peer, req peer.Request) (json.RawMessage, error) {
	return p.Request(ctx, req)
}

func (c *catalog) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	c.mu.Lock()
	if c.inFlight == nil {
		c.inFlight = map[*context.CancelCauseFunc]turns.Owner{}
	}
	c.inFlight[&end] = call.Owner
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.inFlight, &end)
	}()
	listed := slices.ContainsFunc(c.now.Tools, func(t *mcp.Tool) bool { return t.Name == call.Tool })
	a, r, attempts := c.answers[call.Tool], c.raws[call.Tool], c.attempts
	c.mu.Unlock()
	switch {
	case !listed:
		return peer.Answer{}, fault.Wrap(fault.UnsupportedTool, supervisor.ErrUnknownTool, "there is no tool %q", call.Tool)
	case r != nil:
		raw, err := r(ctx, call)
		return peer.Answer{Raw: raw, Attempts: attempts}, err
	case a == nil:
		return peer.Answer{Result: text(string(call.Args))}, nil
	}
	res, err := a(ctx, call.Args)
	return peer.Answer{Result: res, Attempts: attempts}, err
}

// offer makes add say what is listed beside the tools, from the next set on.
func (c *catalog) offer(add func(*supervisor.Catalog)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offers = add
}

// request makes answer say whether requests other than calls succeed.
func (c *catalog) request(answer func(peer.Request) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requested = answer
}

// Request knows nothing that could be asked for, unless the test does.
func (c *catalog) Request(_ context.Context, req peer.Request) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requested != nil {
		return json.RawMessage(`{}`), c.requested(req)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no such thing"}
}

func (c *catalog) Settle(context.Context) {}

func (c *catalog) Waiting(ctx context.Context, _ turns.Owner) (context.Context, func(), error) {
	return ctx, func() {}, nil
}

func (c *catalog) End(of func(turns.Owner) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for end, owner := range c.inFlight {
		if of(owner) {
			(*end)(context.Canceled)
		}
	}
}

func (c *catalog) Updated() <-chan string { return c.updated }

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}

func tool(name string) *mcp.Tool {
	return &mcp.Tool{Name: name, Description: name, InputSchema: json.RawMessage(`{"type":"object"}`)}
}

// gate is a tool that answers when it is let, or when its call is cancelled.
type gate struct {
	began chan struct{} // receives once for each call
	open  chan struct{}
}

func newGate() *gate { return &gate{began: make(chan struct{}, 1000), open: make(chan struct{})} }

func (g *gate) answer(ctx context.Context, _ json.RawMessage) (*mcp.CallToolResult, error) {
	g.began <- struct{}{}
	select {
	case <-g.open:
		return text("let through"), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// world is a bridge over a catalog, with its log.
type world struct {
	*catalog
	bridge  *mcpbridge.Bridge
	log     *syncBuffer
	offered *supervisor.Supervisor // nil unless the bridge has it in place of the catalog
}

func newWorld(t testing.TB, change ...func(*mcpbridge.Options)) *world {
	t.Helper()
	w := &world{catalog: newCatalog(), log: &syncBuffer{}}
	w.set(tool("echo"))
	opts := mcpbridge.Options{Version: "1.2.3", Log: slog.New(slog.NewJSONHandler(w.log, nil))}
	for _, c := range change {
		c(&opts)
	}
	w.bridge = mcpbridge.New(w, opts)
	serve(t, w.bridge.Serve)
	return w
}

// serve runs a service for as long as the test.
func serve(t testing.TB, service func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = service(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

// front is a bridge's HTTP front behind a real server.
type front struct {
	*httpfront.Front
	url    string
	client *http.Client
}

func (w *world) front(t testing.TB, settings httpfront.Settings, change ...func(*httpfront.Front)) *front {
	t.Helper()
	settings.Loopback = true
	h := httpfront.New(w.bridge, settings)
	for _, c := range change {
		c(h)
	}
	serve(t, h.Serve)
	server := httptest.NewServer(h)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(func() {
		h.CloseSessions()
		transport.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return &front{h, server.URL, &http.Client{Transport: transport}}
}

// setLimits makes the front's patience that of a test.
func setLimits(h *httpfront.Front, body, write, keepAlive time.Duration) {
	h.Limits.Body, h.Limits.Room, h.Limits.Write, h.Limits.KeepAlive = body, body, write, keepAlive
}

// addr is where it listens.
func (f *front) addr() string { return strings.TrimPrefix(f.url, "http://") }

// reply is a response as it came.
type reply struct {
	status int
	header http.Header
	raw    string
	id     json.RawMessage
	result json.RawMessage
	code   int64 // of the JSON-RPC error
	text   string
	failed bool // it is a JSON-RPC error
}

// send does one request to the end of its response.
func (f *front) send(t testing.TB, method, path, body string, headers ...string) reply {
	t.Helper()
	res := f.open(t, method, path, strings.NewReader(body), headers...)
	defer func() { _ = res.body.Close() }()
	raw, err := io.ReadAll(res.body)
	if err != nil {
		t.Fatalf("%s %s: read: %v", method, path, err)
	}
	r := reply{status: res.status, header: res.header, raw: string(raw)}
	r.parse(t)
	return r
}

// parse reads the last message of a JSON body or an event stream.
func (r *reply) parse(t testing.TB) {
	t.Helper()
	data := r.raw
	if strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		data = ""
		for line := range strings.Lines(r.raw) {
			if d, ok := strings.CutPrefix(line, "data: "); ok {
				data = d
			}
		}
	}
	var msg struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			Code    int64
			Message string
		}
	}
	if json.Unmarshal([]byte(data), &msg) != nil {
		return
	}
	r.id, r.result = msg.ID, msg.Result
	if msg.Error != nil {
		r.failed, r.code, r.text = true, msg.Error.Code, msg.Error.Message
	}
}

// opened is a response whose body is still to be read.
type opened struct {
	status int
	header http.Header
	last   bool // the connection ends with it
	body   io.ReadCloser
}

// open sends a request; headers are pairs. What a client of MCP always sends is
// there. The body is closed at the end of the test at the latest.
func (f *front) open(t testing.TB, method, path string, body io.Reader, headers ...string) *opened {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url+path, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		switch {
		case headers[i] == "Host":
			req.Host = headers[i+1]
		case headers[i+1] == "":
			req.Header.Del(headers[i])
		default:
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := f.client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return &opened{status: res.StatusCode, header: res.Header, last: res.Close, body: res.Body}
}

// post sends a message to /mcp.
func (f *front) post(t testing.TB, body string, headers ...string) reply {
	t.Helper()
	return f.send(t, http.MethodPost, "/mcp", body, headers...)
}

// newEra are the headers and the body of a request of the stateless era.
func newEra(method, name, params string) (body string, headers []string) {
	headers = []string{"Mcp-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	if name != "" {
		headers = append(headers, "Mcp-Name", name)
	}
	if params != "" {
		params = "," + params
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"_meta":{`+
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}%s}}`, method, params), headers
}

// initialize opens a session and returns its id.
func (f *front) initialize(t testing.TB, headers ...string) string {
	t.Helper()
	r := f.post(t, initialize("2025-11-25"), headers...)
	id := r.header.Get("Mcp-Session-Id")
	if r.status != http.StatusOK || id == "" {
		t.Fatalf("initialize: %d %s", r.status, r.raw)
	}
	return id
}

func initialize(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, version)
}

func call(id any, name string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, name)
}

// connect connects the SDK's client.
func connect(t testing.TB, transport mcp.Transport, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, opts)
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatalf("connect with %s: %v", version, err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func (f *front) connect(t testing.TB, version string, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connect(t, &mcp.StreamableClientTransport{Endpoint: f.url + "/mcp", HTTPClient: f.client}, version, opts)
}

func (f *front) connectSSE(t testing.TB, opts *mcp.ClientOptions) *mcp.ClientSession {
	t.Helper()
	return connect(t, &mcp.SSEClientTransport{Endpoint: f.url + "/sse", HTTPClient: f.client}, "2024-11-05", opts)
}

// mustCall calls echo and returns the text of its answer.
func mustCall(t testing.TB, s *mcp.ClientSession, args any) string {
	t.Helper()
	res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "echo", Arguments: args})
	if err != nil {
		t.Fatalf("call echo: %v", err)
	}
	return textOf(t, res)
}

func textOf(t testing.TB, res *mcp.CallToolResult) string {
	t.Helper()
	if len(res.Content) == 0 {
		t.Fatal("an answer without content")
	}
	c, ok := res.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("the first block is %T; want text", res.Content[0])
	}
	return c.Text
}

// within waits for a value.
func within[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("no %s within %s", what, patience)
		panic("unreachable")
	}
}

var eventually = testkit.Eventually

// syncBuffer is a log with lines of JSON.
type syncBuffer struct{ testkit.Log }

// calls waits until the log has lines of n calls, and returns those that it
// has. A line comes after its answer where nothing else is to be sent.
func (b *syncBuffer) calls(t testing.TB, n int) (lines []map[string]any) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d calls are in the log", n), func() bool {
		lines = b.lines(t, "call")
		return len(lines) >= n
	})
	return lines
}

// lines returns the log's lines with a message.
func (b *syncBuffer) lines(t testing.TB, msg string) []map[string]any {
	t.Helper()
	var found []map[string]any
	scan := bufio.NewScanner(strings.NewReader(b.String()))
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var line map[string]any
		if err := json.Unmarshal(scan.Bytes(), &line); err != nil {
			t.Fatalf("log line %q: %v", scan.Text(), err)
		}
		if line["msg"] == msg {
			found = append(found, line)
		}
	}
	return found
}
