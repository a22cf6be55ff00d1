package mcpbridge_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/orla-project/orla/capsule"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/remote"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
	"github.com/orla-project/orla/supervisor"
)

// remoteServer is an MCP server over Streamable HTTP with the tool "t", which does not
// answer {"slow":true} until the test is over.
func remoteServer(t *testing.T) *httptest.Server {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct{ Arguments json.RawMessage }
		}
		raw, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost || json.Unmarshal(raw, &m) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		result := `{}`
		switch {
		case m.ID == nil:
			w.WriteHeader(http.StatusAccepted)
			return
		case m.Method == "initialize":
			result = `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}`
		case m.Method == "tools/list":
			result = `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`
		case m.Method == "tools/call":
			if string(m.Params.Arguments) == `{"slow":true}` {
				select {
				case <-release:
				case <-r.Context().Done():
				}
			}
			result = `{"content":[{"type":"text","text":"called"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(release) })
	return server
}

// serveRemote is a supervisor that serves a remote MCP server as "far".
func serveRemote(t *testing.T, url string) *supervisor.Supervisor {
	log := slog.New(slog.DiscardHandler)
	client := outbound.New(outbound.Options{})
	t.Cleanup(client.Close)
	s := supervisor.New(supervisor.Options{
		Build: map[manifest.Kind]supervisor.Build{manifest.Capsule: func(t manifest.Tool) (supervisor.Provider, error) {
			return capsule.New(t, capsule.Options{Connect: remote.Connect(t, remote.Options{Client: client}), Lists: records.NewLists(""), Log: log})
		}},
		Log: log,
	})
	serve(t, s.Serve)
	const patience = time.Minute
	diff := s.Apply([]manifest.Tool{{
		Name: "far", Kind: manifest.Capsule, Source: "far.yaml", InputSchema: json.RawMessage(`{"type":"object"}`),
		Run: manifest.Run{Timeout: patience},
		Runtime: manifest.Runtime{
			Handshake: manifest.HandshakeMCP, Start: manifest.StartEager, Generated: true,
			StartupTimeout: patience, Drain: time.Second, StopGrace: time.Second, QueueTimeout: patience,
			HotLoad: manifest.HotLoad{Mode: manifest.HotLoadRestart},
			Restart: manifest.Restart{Initial: 50 * time.Millisecond, Max: time.Second, ResetAfter: time.Minute},
			Remote:  &manifest.Remote{Endpoint: url},
		},
	}})
	if len(diff.Failed) > 0 {
		t.Fatalf("it is not served: %v", diff.Failed)
	}
	return s
}

// SPEC N2: a caller that has more calls at a remote server than that may work on at one
// time, and that it does not answer, leaves places to another caller.
func TestN2SlowCallsToARemoteServerLeavePlacesToOthers(t *testing.T) {
	s := serveRemote(t, remoteServer(t).URL)
	bridge := mcpbridge.New(s, mcpbridge.Options{Version: "1.2.3", Log: slog.New(slog.DiscardHandler)})
	serve(t, bridge.Serve)
	f := (&world{bridge: bridge}).front(t, httpfront.Settings{Verify: tokens})
	eventually(t, "the server's tool is there", func() bool { return len(s.Catalog().Tools) == 1 })
	post := func(ctx context.Context, caller, args string) (string, error) {
		body, headers := newEra("tools/call", "far--t", `"name":"far--t","arguments":`+args)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url+"/mcp", strings.NewReader(body))
		if err != nil {
			return "", err
		}
		for i, all := 0, append(headers, bearer(caller, "Accept", "application/json, text/event-stream", "Content-Type", "application/json")...); i < len(all); i += 2 {
			req.Header.Set(all[i], all[i+1])
		}
		res, err := f.client.Do(req)
		if err != nil {
			return "", err
		}
		defer func() { _ = res.Body.Close() }()
		raw, err := io.ReadAll(res.Body)
		return string(raw), err
	}
	const flood = 300
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	defer calls.Wait()
	defer cancel()
	for range flood {
		calls.Go(func() { _, _ = post(ctx, "ann", `{"slow":true}`) })
	}
	eventually(t, "all of the first caller's calls are on their way", func() bool { return s.Lives()["far"].InFlight >= flood })
	for i := range 5 {
		within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		got, err := post(within, "bob", `{}`)
		cancel()
		if err != nil || !strings.Contains(got, `"text":"called"`) {
			t.Fatalf("call %d of another caller: %s, %v", i, got, err)
		}
	}
}
