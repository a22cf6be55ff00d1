package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// contender is a running server that answers calls of capsuleTool, by a capsule
// of its own or by itself.
type contender struct {
	name   string
	over   string // transport and era
	work   func(payload) load
	cpu    func() (cpu, error)
	shared bool   // see subject
	close  func() // its clients, and the server itself
}

// subject is the contender at work on one payload.
func (c *contender) subject(p payload) subject {
	return subject{name: c.name, load: c.work(p), cpu: c.cpu, shared: c.shared}
}

// capsulePackage makes a folder of tools with one package, whose capsule is the
// built one.
func (b *bench) capsulePackage(toolsDir, name, runtime string) error {
	dir := filepath.Join(toolsDir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Link(b.capsule, filepath.Join(dir, "capsule")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "tool.yaml"), fmt.Appendf(nil, capsuleManifest, name, "capsule", runtime), 0o600)
}

// capsuleManifest takes a name, an entrypoint and more of runtime.
const capsuleManifest = `name: %s
version: 1.0.0
description: Answers with a text of the size that it is asked for.
entrypoint: %s
mcp: {input_schema: {type: object, properties: {size: {type: integer}, text: {type: string}}}}
runtime: {mode: capsule%s}
`

// openHTTPContender connects clients to a server that was just started.
func openHTTPContender(ctx context.Context, name string, s *server, e era, connections int) (*contender, error) {
	var clients []*mcpClient
	c := &contender{name: name, over: e.name, cpu: func() (cpu, error) { return cpuOfTree(s.pid()) }}
	c.close = func() {
		for _, client := range clients {
			client.close()
		}
		s.stop()
	}
	for range connections {
		client, err := connect(ctx, s.host, e)
		if err != nil {
			c.close()
			return nil, err
		}
		clients = append(clients, client)
	}
	c.work = func(p payload) load {
		calls := newCalls(p, clients)
		return func(n, inFlight int) ([]time.Duration, error) {
			return lanes(n, inFlight, func(lane int) error { return calls.ask(clients[lane].httpClient, lane) })
		}
	}
	return c, nil
}

// openPipeContender is the client of a server on pipes.
func openPipeContender(name string, s *server) (*contender, error) {
	client, err := connectStdio(s)
	if err != nil {
		s.stop()
		return nil, err
	}
	used := func() (cpu, error) { return cpuOfTree(s.pid()) }
	return &contender{name: name, over: "stdio", work: client.work, cpu: used, close: s.stop}, nil
}

// cpuOfTree is the CPU time of a server and of all that it has started.
func cpuOfTree(pid int) (cpu, error) {
	used, err := cpuOf(pid)
	if err != nil {
		return used, err
	}
	children, err := childrenOf(pid)
	for _, child := range children {
		if other, err := cpuOfTree(child); err == nil { // it may just have ended
			used.children += other.total()
		}
	}
	return used, err
}

// openPipe starts a capsule at the other end of two pipes.
func (b *bench) openPipe(ctx context.Context) (*contender, error) {
	p, err := startBare(ctx, b.capsule)
	if err != nil {
		return nil, err
	}
	used := func() (cpu, error) {
		own, err := ownCPU()
		if err != nil {
			return cpu{}, err
		}
		other, err := cpuOf(p.cmd.Process.Pid)
		return cpu{own: own.own, children: other.own}, err
	}
	client := &stdioClient{in: bufio.NewReaderSize(p.out, longestLine), out: p.in}
	return &contender{
		name: "pipe", over: "pipes", work: client.work, cpu: used, shared: true,
		close: func() { _ = p.end() }, // how it ends is not measured
	}, nil
}

// field is all who are compared over one transport.
type field struct {
	relay, sdk, pipe *contender
	bare             *contender // a relay that checks nothing, where relay checks; else nil
	orlas            []*contender
}

func (f *field) close() {
	for _, c := range append([]*contender{f.relay, f.bare, f.sdk, f.pipe}, f.orlas...) {
		if c != nil {
			c.close()
		}
	}
}

// openHTTPField starts those who speak HTTP. What it returns beside an error is
// to be closed as well.
func (b *bench) openHTTPField(ctx context.Context, toolsDir string, connections int) (*field, error) {
	f := &field{}
	open := func(name string, e era, argv ...string) (*contender, error) {
		s, err := b.start(ctx, argv...)
		if err != nil {
			return nil, err
		}
		return openHTTPContender(ctx, name, s, e, connections)
	}
	var err error
	if f.relay, err = open("relay", withSession, b.relay, "http", b.capsule); err != nil {
		return f, err
	}
	if f.sdk, err = open("SDK", withSession, b.sdk, "http"); err != nil {
		return f, err
	}
	for _, e := range []era{withSession, canBeAsked, stateless} {
		c, err := open("Orla", e, b.orlaHTTP(toolsDir)...)
		if c != nil {
			f.orlas = append(f.orlas, c)
		}
		if err != nil {
			return f, err
		}
	}
	f.pipe, err = b.openPipe(ctx)
	return f, err
}

// openStdioField starts those on pipes, as openHTTPField does.
func (b *bench) openStdioField(ctx context.Context, toolsDir string) (*field, error) {
	f := &field{}
	open := func(name string, argv ...string) (*contender, error) {
		s, err := b.startPiped(ctx, argv...)
		if err != nil {
			return nil, err
		}
		return openPipeContender(name, s)
	}
	var err error
	if f.relay, err = open("relay", b.relay, "checked", b.capsule); err != nil {
		return f, err
	}
	if f.bare, err = open("bare relay", b.relay, "stdio", b.capsule); err != nil {
		return f, err
	}
	if f.sdk, err = open("SDK", b.sdk, "stdio"); err != nil {
		return f, err
	}
	c, err := open("Orla", b.orla, "--stdio", "--tools-dir", toolsDir)
	if c != nil {
		f.orlas = append(f.orlas, c)
	}
	if err != nil {
		return f, err
	}
	f.pipe, err = b.openPipe(ctx)
	return f, err
}
