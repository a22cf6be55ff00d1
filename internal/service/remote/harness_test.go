package remote_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/remote"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// within waits for what a channel tells.
func within(t *testing.T, what string, is <-chan struct{}) {
	t.Helper()
	select {
	case <-is:
	case <-time.After(patience):
		t.Fatalf("it is not so that %s", what)
	}
}

// living is a capsule that is a session with a server.
type living struct {
	*capsule.Capsule
	t    *testing.T
	log  *testkit.Log
	stop func()
}

// options are what a test may change.
type options struct {
	tool    manifest.Tool
	auth    *auth.Source
	started func(capsule.Connection) // is told of each session
	over    func(context.Context) bool
}

// connect serves a capsule whose server is at a URL, until the test is over.
func connect(t *testing.T, url string, mods ...func(*options)) *living {
	t.Helper()
	o := options{tool: manifest.Tool{
		Name: "far", Kind: manifest.Capsule, Source: "far.yaml", InputSchema: json.RawMessage(`{"type":"object"}`),
		Run: manifest.Run{Timeout: patience},
		Runtime: manifest.Runtime{
			Handshake: manifest.HandshakeMCP, Start: manifest.StartEager, Generated: true,
			StartupTimeout: patience, Drain: time.Second, StopGrace: time.Second,
			HotLoad: manifest.HotLoad{Mode: manifest.HotLoadRestart},
			Restart: manifest.Restart{Initial: 50 * time.Millisecond, Max: time.Second, ResetAfter: time.Minute},
			Remote:  &manifest.Remote{Endpoint: url},
		},
	}}
	for _, mod := range mods {
		mod(&o)
	}
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	l := &living{t: t, log: &testkit.Log{}}
	log := slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	start := remote.Connect(o.tool, remote.Options{Client: client, Auth: o.auth, Over: o.over, Log: log})
	l.Capsule, err = capsule.New(o.tool, capsule.Options{
		Connect: func(ctx context.Context) (capsule.Connection, error) {
			p, err := start(ctx)
			if err == nil && o.started != nil {
				o.started(p)
			}
			return p, err
		},
		Lists: records.NewLists(""),
		Log:   log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Serve(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Serve returned %v", err)
		}
	}()
	l.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience):
			stacks := make([]byte, 1<<20)
			t.Fatalf("the capsule does not stop; its log:\n%s\n%s", l.log, stacks[:runtime.Stack(stacks, true)])
		}
		if t.Failed() {
			t.Logf("the log:\n%s", l.log)
		}
	})
	t.Cleanup(l.stop)
	return l
}

func (l *living) becomes(state string) {
	l.t.Helper()
	testkit.Eventually(l.t, fmt.Sprintf("the capsule is %s: %+v", state, l.Life()), func() bool { return l.Life().State == state })
}

// offers waits until the capsule offers so many tools.
func (l *living) offers(n int) []*mcp.Tool {
	l.t.Helper()
	testkit.Eventually(l.t, fmt.Sprintf("the capsule offers %d tools", n), func() bool { return len(l.Tools()) == n })
	return l.Tools()
}

// text is what a call answers: the text of its first content, or its error.
func (l *living) text(tool, args string) string {
	l.t.Helper()
	text, err := l.call(tool, args, nil)
	if err != nil {
		return err.Error()
	}
	return text
}

func (l *living) call(tool, args string, client peer.Client) (string, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	answer, err := l.Call(ctx, peer.Call{Tool: tool, Args: json.RawMessage(args), Client: client})
	if err != nil {
		return "", err
	}
	var res struct {
		Content []struct{ Text string }
	}
	if err := json.Unmarshal(answer.Raw, &res); err != nil || len(res.Content) == 0 {
		l.t.Errorf("the answer is %s, %v", answer.Raw, err)
		return string(answer.Raw), nil
	}
	return res.Content[0].Text, nil
}

// teller is a client that notes what it is told, and answers what it is asked.
type teller struct {
	mu   sync.Mutex // guards told
	told []string
}

func (c *teller) Session() string    { return "s" }
func (c *teller) Owner() turns.Owner { return turns.Owner{} }
func (c *teller) Hears() bool        { return true }
func (c *teller) Declared() peer.Declared {
	return peer.Declared{Capabilities: json.RawMessage(`{"elicitation":{},"sampling":{},"roots":{}}`)}
}
func (c *teller) WantsProgress() bool { return true }
func (c *teller) Notify(_ context.Context, method string, params json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, method+" "+string(params))
}

func (c *teller) Ask(_ context.Context, method string, _ json.RawMessage) (json.RawMessage, error) {
	switch method {
	case "elicitation/create":
		return json.RawMessage(`{"action":"accept","content":{"name":"Ada"}}`), nil
	case "roots/list":
		return json.RawMessage(`{"roots":[{"uri":"file:///x"}]}`), nil
	}
	return json.RawMessage(`{"role":"assistant","model":"m","content":{"type":"text","text":"sampled"}}`), nil
}

// asked is a message that a scripted server gets.
type asked struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	} `json:"params"`
}

// scripted is a server whose part a test writes.
type scripted struct {
	*httptest.Server

	mu      sync.Mutex // guards the field that follows
	methods []string   // of requests of HTTP and of messages, in the order in which they came
}

// script starts one. play answers what it likes and reports whether it did; the
// rest is answered as a server without sessions would that has the tool "t".
func script(t *testing.T, play func(w http.ResponseWriter, r *http.Request, m asked) bool) *scripted {
	t.Helper()
	s := &scripted{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m asked
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client went away
		}
		if r.Method == http.MethodPost {
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Errorf("the server got %q", raw)
			}
		}
		s.mu.Lock()
		s.methods = append(s.methods, strings.TrimSpace(r.Method+" "+m.Method))
		s.mu.Unlock()
		if play(w, r, m) {
			return
		}
		switch {
		case r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.ID == nil || m.Method == "":
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "initialize":
			answer(w, m, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}`)
		case m.Method == "tools/list":
			answer(w, m, `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
		case m.Method == "tools/call":
			answer(w, m, result("called"))
		default:
			answer(w, m, `{}`)
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

func result(text string) string {
	return fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, text)
}

// answer answers a request by JSON.
func answer(w http.ResponseWriter, m asked, result string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// sse begins a stream, and returns what writes an event to it.
func sse(w http.ResponseWriter) (send func(format string, args ...any)) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	flush := func() { _ = http.NewResponseController(w).Flush() }
	flush()
	return func(format string, args ...any) {
		_, _ = fmt.Fprintf(w, format+"\n\n", args...)
		flush()
	}
}

// listen listens at an address of this machine.
func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return listener
}
