package mcptool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/kind/mcptool"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// fakeServer is an McpServer that has what it is given.
type fakeServer struct {
	supervisor.Peer // none of it is used, but for what is below

	mu       sync.Mutex // guards the fields that follow
	has      map[string]*mcp.Tool
	withheld error // why its tools must not be served
	gone     bool  // its calls end with peer.ErrGone
	changed  chan struct{}
	offers   *peer.Offers
}

func newServer(has map[string]*mcp.Tool) *fakeServer {
	s := &fakeServer{}
	s.set(has)
	return s
}

// set makes what it has; nil for what is not known.
func (s *fakeServer) set(has map[string]*mcp.Tool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.has = has
	old := s.changed
	s.changed = make(chan struct{})
	s.offers = &peer.Offers{Known: true, Changed: s.changed}
	if old != nil {
		close(old)
	}
}

func (s *fakeServer) Original(name string) (*mcp.Tool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.has[name], s.has != nil
}

func (s *fakeServer) Offers() *peer.Offers {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.offers
}

func (s *fakeServer) Withholds(string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.withheld
}

func (s *fakeServer) Tools() []*mcp.Tool              { return nil }
func (s *fakeServer) Updated() <-chan string          { return nil }
func (s *fakeServer) Life() peer.Life                 { return peer.Life{} }
func (s *fakeServer) Serve(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func (s *fakeServer) CallOriginal(_ context.Context, call peer.Call) (peer.Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return peer.Answer{}, fault.Wrap(fault.NotReady, peer.ErrGone, "it is gone")
	}
	raw, err := json.Marshal(call.Tool + string(call.Args))
	return peer.Answer{Raw: raw}, err
}

func mcpTool(mods ...func(*manifest.Tool)) manifest.Tool {
	t := manifest.Tool{
		Name: "read", Kind: manifest.MCP, Source: "read.yaml", InputSchema: json.RawMessage(`{"type":"object"}`),
		Resource: &manifest.Resource{Server: "files", ServerTool: "read_file"},
	}
	for _, mod := range mods {
		mod(&t)
	}
	return t
}

func original(description string) map[string]*mcp.Tool {
	return map[string]*mcp.Tool{"read_file": {
		Name: "read_file", Title: "Read", Description: description, InputSchema: json.RawMessage(`{"type":"object","required":["path"]}`),
		OutputSchema: json.RawMessage(`{"type":"object"}`), Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true},
	}}
}

// served is a supervisor of the tool and, if there is one, of its server.
func served(t *testing.T, tool manifest.Tool, server *fakeServer, log *slog.Logger) *supervisor.Supervisor {
	t.Helper()
	var s *supervisor.Supervisor
	s = supervisor.New(supervisor.Options{Log: log, Build: map[manifest.Kind]supervisor.Build{
		manifest.Capsule: func(manifest.Tool) (supervisor.Provider, error) { return server, nil },
		manifest.MCP: func(of manifest.Tool) (supervisor.Provider, error) {
			return mcptool.New(of, mcptool.Options{Log: log, Find: func(name string) (supervisor.Peer, bool) { return s.Catalog().Peer(name) }})
		},
	}})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(ctx) // it ends by ctx alone
	}()
	t.Cleanup(func() { cancel(); <-done })
	apply(t, s, tool, server)
	return s
}

func apply(t *testing.T, s *supervisor.Supervisor, tool manifest.Tool, server *fakeServer) {
	t.Helper()
	tools := []manifest.Tool{tool}
	if server != nil {
		tools = append(tools, manifest.Tool{Name: "files", Kind: manifest.Capsule, Source: "files.yaml"})
	}
	if diff := s.Apply(tools); len(diff.Failed) > 0 {
		t.Fatal(diff.Failed)
	}
}

func listed(t *testing.T, s *supervisor.Supervisor) *mcp.Tool {
	t.Helper()
	tools := s.Catalog().Tools
	if len(tools) != 1 || tools[0].Name != "read" {
		t.Fatalf("there are %d tools, want read alone", len(tools))
	}
	return tools[0]
}

// SPEC-TOOLS 3.5: a tool of type mcp has its own name, the server's description
// and schemas where its manifest gives none, and is called by the server's name.
func TestToolOfAServer(t *testing.T) {
	server := newServer(original("reads a file"))
	s := served(t, mcpTool(), server, slog.New(slog.DiscardHandler))
	got := listed(t, s)
	if got.Description != "reads a file" || got.Title != "Read" || got.OutputSchema == nil || !got.Annotations.ReadOnlyHint {
		t.Errorf("it is listed as %+v", got)
	}
	if !s.Catalog().Talks["read"] {
		t.Error("its server cannot speak to clients")
	}
	answer, err := s.Call(t.Context(), peer.Call{Tool: "read", Args: json.RawMessage(`{"path":"x"}`)})
	if err != nil || string(answer.Raw) != `"read_file{\"path\":\"x\"}"` {
		t.Errorf("the answer is %s, %v", answer.Raw, err)
	}
	if _, err := s.Call(t.Context(), peer.Call{Tool: "read"}); fault.CodeOf(err) != fault.InvalidInput {
		t.Errorf("without what the server's schema requires the error is %v", err)
	}
}

// SPEC-TOOLS 3.5: what the manifest says goes before what the server says.
func TestManifestGoesFirst(t *testing.T) {
	own := mcpTool(func(t *manifest.Tool) {
		t.Title, t.Description = "Mine", "my own"
		t.InputSchema = json.RawMessage(`{"type":"object","maxProperties":1}`)
		t.OutputSchema = json.RawMessage(`{"type":"object","maxProperties":2}`)
		t.Annotations = &mcp.ToolAnnotations{Title: "mine"}
	})
	got := listed(t, served(t, own, newServer(original("reads")), slog.New(slog.DiscardHandler)))
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"title":"Mine"`, `"my own"`, `"maxProperties":1`, `"maxProperties":2`, `"title":"mine"`} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("it is listed as %s, without %s", raw, want)
		}
	}
}

// SPEC-TOOLS 3.5: the tool follows its server's changes, and stays as it was
// while the server is not there.
func TestFollowsTheServer(t *testing.T) {
	server := newServer(nil)
	log := &bytes.Buffer{}
	var mu sync.Mutex
	s := served(t, mcpTool(), server, slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(p)
	}), nil)))
	if got := listed(t, s); got.Description != "" {
		t.Errorf("before its server is known it is listed as %+v", got)
	}
	if answer, err := s.Call(t.Context(), peer.Call{Tool: "read"}); err != nil || string(answer.Raw) != `"read_file"` {
		t.Errorf("before its server is known the answer is %s, %v", answer.Raw, err)
	}
	warnings := func(text string) int {
		mu.Lock()
		defer mu.Unlock()
		return strings.Count(log.String(), strings.ReplaceAll(text, `"`, `\"`))
	}
	until := func(what string, is func() bool) {
		t.Helper()
		deadline := time.Now().Add(patience)
		for c := s.Catalog(); !is(); c = s.Catalog() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // what is logged may come after the last change
			_ = c.Wait(ctx)
			cancel()
			if time.Now().After(deadline) {
				t.Fatalf("it is not so that %s; it is listed as %+v", what, listed(t, s))
			}
		}
	}
	described := func(text string) func() bool {
		return func() bool { return listed(t, s).Description == text }
	}
	server.set(original("first"))
	until("it is as the server lists it", described("first"))
	server.set(original("second"))
	until("it is as the server lists it now", described("second"))
	server.set(map[string]*mcp.Tool{"read_file": {Name: "read_file", InputSchema: json.RawMessage(`"no schema"`), Description: "third"}})
	until("its server has a schema that is none", described("third"))
	if schema := listed(t, s).InputSchema.(json.RawMessage); string(schema) != `{"type":"object"}` {
		t.Errorf("with a schema that is none it is listed with %s", schema)
	}
	for _, test := range []struct {
		name   string
		change func()
		want   string
	}{
		{"the server has it no more", func() { server.set(map[string]*mcp.Tool{}) }, `the server has no tool "read_file"`},
		{"the server is not there", func() { apply(t, s, mcpTool(), nil) }, "there is no McpServer of that name"},
	} {
		test.change()
		until("it is said that "+test.name, func() bool { return warnings(test.want) == 1 })
		if got := listed(t, s); got.Description != "third" {
			t.Errorf("%s: it is listed as %+v", test.name, got)
		}
		_, err := s.Call(t.Context(), peer.Call{Tool: "read"})
		if fault.CodeOf(err) != fault.UnsupportedTool || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: the error is %v, want %s", test.name, err, test.want)
		}
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// A call of a server that was just replaced goes to its successor.
func TestSuccessorIsAsked(t *testing.T) {
	old, next := newServer(original("")), newServer(original(""))
	old.gone = true
	found := 0
	tool, err := mcptool.New(mcpTool(), mcptool.Options{Log: slog.New(slog.DiscardHandler), Find: func(string) (supervisor.Peer, bool) {
		if found++; found == 1 {
			return old, true
		}
		return next, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := tool.Call(t.Context(), peer.Call{Tool: "read"}); err != nil || string(answer.Raw) != `"read_file"` {
		t.Errorf("the answer is %s, %v", answer.Raw, err)
	}
	next.gone = true
	if _, err := tool.Call(t.Context(), peer.Call{Tool: "read"}); !errors.Is(err, peer.ErrGone) {
		t.Errorf("without a successor the error is %v", err)
	}
}

func TestManifestThatNamesNoServer(t *testing.T) {
	for _, mod := range []func(*manifest.Tool){
		func(t *manifest.Tool) { t.Resource = nil },
		func(t *manifest.Tool) { t.Resource.Server = "" },
		func(t *manifest.Tool) { t.Resource.ServerTool = "" },
	} {
		if _, err := mcptool.New(mcpTool(mod), mcptool.Options{}); fault.CodeOf(err) != fault.RuntimePolicyInvalid {
			t.Errorf("the error is %v", err)
		}
	}
}

// SPEC N4: a tool whose server's tool must not be served is not listed, a call says why, and the log has no line: it
// has one already.
func TestN4AToolThatIsWithheld(t *testing.T) {
	server := newServer(original("reads"))
	log := &bytes.Buffer{}
	s := served(t, mcpTool(), server, slog.New(slog.NewTextHandler(log, nil)))
	hold := func(why error) {
		server.mu.Lock()
		server.withheld = why
		server.mu.Unlock()
		c := s.Catalog()
		server.set(original("reads"))
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	hold(fault.New(fault.PermissionDenied, "it is held"))
	if n := len(s.Catalog().Tools); n != 0 || s.Catalog().Withheld("read") == nil {
		t.Errorf("%d tools are listed", n)
	}
	if _, err := s.Call(t.Context(), peer.Call{Tool: "read", Args: json.RawMessage(`{"path":"x"}`)}); fault.From(err) == nil || fault.From(err).Reason != "it is held" {
		t.Errorf("a call gives %v", err)
	}
	hold(nil)
	if listed(t, s).Description != "reads" {
		t.Error("it is not back")
	}
	if log.Len() > 0 {
		t.Errorf("the log says %s", log)
	}
	// A call that was admitted before meets it too.
	server.mu.Lock()
	server.withheld = fault.New(fault.PermissionDenied, "it is held")
	server.mu.Unlock()
	if _, err := s.Call(t.Context(), peer.Call{Tool: "read", Args: json.RawMessage(`{"path":"x"}`)}); fault.From(err) == nil || fault.From(err).Reason != "it is held" {
		t.Errorf("before the lists are known to have changed, a call gives %v", err)
	}
}
