package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	// peerPatience bounds one answer of a peer: one that is silent for so long fails.
	peerPatience = 20 * time.Second
	// keptAlive is for how long a connection may rest. Node.js closes one after 5 s.
	keptAlive = 2 * time.Second
)

// peer is a gateway that others make, in the mode in which it is fastest and
// still has one process for all clients.
type peer struct {
	name string
	// argv is how it starts in front of the bench's MCP server.
	argv func(b *bench, port string) ([]string, error)
	eras []era
	// oneSession says that it has a process for each session: all clients share one.
	oneSession bool
	rest       bool // its calls are not those of MCP
}

// overREST stands in the tables for a peer's own way of being called.
const overREST = "HTTP, REST"

// peers are those of testdata/peers.
func peers() []peer {
	return []peer{
		{
			name: "supergateway", eras: []era{withSession}, oneSession: true,
			argv: func(b *bench, port string) ([]string, error) {
				return b.peerModule("supergateway/dist/index.js", "--stdio", "'"+b.capsule+"' -mcp", "--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none", "--port", port), nil
			},
		},
		{
			name: "mcp-proxy", eras: []era{withSession, stateless},
			argv: func(b *bench, port string) ([]string, error) {
				return b.peerModule("mcp-proxy/dist/bin/mcp-proxy.mjs", "--server", "stream", "--no-eventStore", "--host", "127.0.0.1", "--port", port, "--", b.capsule, "-mcp"), nil
			},
		},
		{name: "mcp-hub", eras: []era{withSession}, rest: true, argv: hubArgv},
		{
			name: "mcp-go", eras: []era{withSession, stateless},
			argv: func(b *bench, port string) ([]string, error) {
				return []string{b.gateway(), port, b.capsule, "-mcp"}, nil
			},
		},
	}
}

// standIns take part where next to nothing is measured: they need no installation.
func standIns() []peer {
	argv := func(b *bench, port string) ([]string, error) {
		return []string{b.relay, "http", b.capsule, port}, nil
	}
	return []peer{
		{name: "stand-in", argv: argv, eras: []era{withSession, stateless}},
		{name: "stand-in of one session", argv: argv, eras: []era{withSession}, oneSession: true},
	}
}

// gateway is the gateway that is made with mcp-go.
func (b *bench) gateway() string { return filepath.Join(b.dir, "bin", "mcpgo") }

// installPeers installs what testdata/peers names, and does nothing when that
// is up to date. Its error says what is missing.
func (b *bench) installPeers(ctx context.Context) error {
	if err := goBuild(ctx, filepath.Join(b.peersFolder(), "mcpgo"), b.gateway(), "."); err != nil {
		return err
	}
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("there is no %s here, which the peers are installed with", program)
		}
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.root, "scripts/clients"), "peers")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the peers are not installed: %w %s", err, text)
	}
	return nil
}

func (b *bench) peersFolder() string { return filepath.Join(b.root, "testdata/peers") }

// peerModule is the command line of a program that npm has installed.
func (b *bench) peerModule(module string, args ...string) []string {
	folder := b.peersFolder()
	return append([]string{"node", "--require", filepath.Join(folder, "loopback.cjs"), filepath.Join(folder, "node_modules", module)}, args...)
}

// hubArgv writes the configuration of mcp-hub, and a catalog that is fresh: it
// would ask the network for one.
func hubArgv(b *bench, port string) ([]string, error) {
	servers := map[string]any{"bench": map[string]any{"command": b.capsule, "args": []string{"-mcp"}}}
	catalog := map[string]any{
		"registry":      map[string]any{"servers": []any{map[string]any{"id": "none", "name": "none"}}},
		"lastFetchedAt": time.Now().UnixMilli(), "serverDocumentation": map[string]any{},
	}
	config := filepath.Join(b.dir, "hub.json")
	cache := filepath.Join(b.home(), ".local/share/mcp-hub/cache/registry.json")
	if err := os.MkdirAll(filepath.Dir(cache), 0o755); err != nil {
		return nil, err
	}
	for path, content := range map[string]any{config: map[string]any{"mcpServers": servers}, cache: catalog} {
		text, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return nil, err
		}
	}
	return b.peerModule("mcp-hub/dist/cli.js", "--port", port, "--config", config), nil
}

// openPeer starts a peer and connects clients to it, once it answers calls.
func (b *bench) openPeer(ctx context.Context, p peer, e era, connections int) (*contender, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	argv, err := p.argv(b, port)
	if err != nil {
		return nil, err
	}
	s, err := b.spawn(ctx, argv, func(s *server) error {
		s.cmd.Env = append(s.cmd.Env, "NODE_ENV=production")
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.host = net.JoinHostPort("127.0.0.1", port)
	c, err := awaitPeer(ctx, p, s, e, connections)
	if err != nil {
		s.kill()
		return nil, fmt.Errorf("%w; it says: %s", err, s.logEnd())
	}
	warmUp := c.work(payload{size: littleText})
	if _, err := warmUp(b.scale.peerWarmUp, min(16, connections)); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// freePort is a port on which nobody listens now. Not every peer chooses one by itself.
func freePort(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// awaitPeer tries to connect, and to call, until that works.
func awaitPeer(ctx context.Context, p peer, s *server, e era, connections int) (*contender, error) {
	last := time.Now().Add(startPatience)
	for {
		c, err := connectPeer(ctx, p, s, e, connections)
		if err == nil {
			if _, err = c.work(payload{size: littleText})(1, 1); err == nil {
				return &c.contender, nil
			}
			c.hangUp()
		}
		if _, ended := exeOf(s.pid()); ended != nil || time.Now().After(last) {
			return nil, err
		}
		if err := rest(ctx, 20*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// peerContender is a peer with its clients.
type peerContender struct {
	contender
	clients []*mcpClient
}

func (c *peerContender) hangUp() {
	for _, client := range c.clients {
		client.close()
	}
}

func connectPeer(ctx context.Context, p peer, s *server, e era, connections int) (*peerContender, error) {
	c := &peerContender{contender: contender{name: p.name, over: e.name, cpu: func() (cpu, error) { return cpuOfTree(s.pid()) }}}
	c.close = func() {
		c.hangUp()
		s.kill()
	}
	makeCalls := newCalls
	if p.rest {
		c.over, makeCalls = overREST, newRESTCalls
	}
	for i := range connections {
		client, err := connectPeerClient(ctx, p, s.host, e, c.clients)
		if err != nil {
			c.hangUp()
			return nil, fmt.Errorf("client %d: %w", i+1, err)
		}
		client.patience = peerPatience
		c.clients = append(c.clients, client)
	}
	c.work = func(p payload) load {
		calls := makeCalls(p, c.clients)
		return func(n, inFlight int) ([]time.Duration, error) {
			for _, client := range c.clients[:inFlight] {
				if err := client.renew(ctx); err != nil {
					return nil, err
				}
			}
			return lanes(n, inFlight, func(lane int) error { return calls.ask(c.clients[lane].httpClient, lane) })
		}
	}
	return c, nil
}

// connectPeerClient connects one more client.
func connectPeerClient(ctx context.Context, p peer, host string, e era, others []*mcpClient) (*mcpClient, error) {
	shared := p.oneSession && len(others) > 0
	if !p.rest && !shared {
		return connect(ctx, host, e)
	}
	conn, err := dial(ctx, host)
	if err != nil {
		return nil, err
	}
	c := &mcpClient{httpClient: conn, host: host, era: e}
	if shared {
		c.session = others[0].session
	}
	return c, nil
}

// newRESTCalls are calls in the way of mcp-hub.
func newRESTCalls(p payload, clients []*mcpClient) *calls {
	params := strings.Replace(p.params(), `"name":`, `"server_name":"bench","tool":`, 1)
	c := &calls{payload: p, body: []byte("{" + params + "}")}
	for _, client := range clients {
		c.heads = append(c.heads, postHead(client.host, "/api/servers/tools", nil, len(c.body)))
	}
	return c
}

// renew connects anew after a rest.
func (c *mcpClient) renew(ctx context.Context) error {
	if time.Since(c.last) < keptAlive {
		return nil
	}
	conn, err := dial(ctx, c.host)
	if err != nil {
		return err
	}
	conn.patience = c.patience
	c.close()
	c.httpClient = conn
	return nil
}

// kill ends a server that nobody needs any more, and that may not end when it is told to.
func (s *server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended by itself
	s.stop()
}
