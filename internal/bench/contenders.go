package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// contender is a running server that answers calls of capsuleTool, by a capsule
// of its own or by itself.
type contender struct {
	name    string
	over    string       // transport and era
	clients []*mcpClient // over HTTP, else none
	pipe    *stdioClient // on pipes, else nil
	cpu     func() (cpu, error)
	shared  bool // see subject
	stop    func()
}

// subject is the contender at work on one payload.
func (c *contender) subject(p payload) subject {
	s := subject{name: c.name, cpu: c.cpu, shared: c.shared}
	if c.pipe != nil {
		line := p.line()
		s.load = func(n, inFlight int) ([]time.Duration, error) { return c.pipe.exchange(n, inFlight, line, p.check) }
		return s
	}
	calls := newCalls(p, c.clients)
	s.load = func(n, inFlight int) ([]time.Duration, error) {
		return lanes(n, inFlight, func(lane int) error { return calls.ask(c.clients[lane], lane) })
	}
	return s
}

func (c *contender) close() {
	for _, client := range c.clients {
		client.close()
	}
	c.stop()
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
	c := &contender{name: name, over: e.name, stop: s.stop}
	for range connections {
		client, err := connect(ctx, s.host, e)
		if err != nil {
			c.close()
			return nil, err
		}
		c.clients = append(c.clients, client)
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
	return &contender{name: name, over: "stdio", pipe: client, stop: s.stop}, nil
}

// countCapsule makes the CPU time of c that of s and of the capsule that s
// started. It makes one call before, which waits for the capsule.
func (b *bench) countCapsule(c *contender, s *server) error {
	if _, err := c.subject(payload{size: littleText}).load(1, 1); err != nil {
		return err
	}
	pids, err := childrenOf(s.pid())
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if path, err := exeOf(pid); err == nil && filepath.Base(path) == filepath.Base(b.capsule) {
			c.cpu = func() (cpu, error) { return cpuOfBoth(s.pid(), pid) }
			return nil
		}
	}
	return errors.New(c.name + ": its capsule was not found")
}

// cpuOfBoth is the CPU time of a server and of its helper.
func cpuOfBoth(server, helper int) (cpu, error) {
	own, err := cpuOf(server)
	if err != nil {
		return cpu{}, err
	}
	other, err := cpuOf(helper)
	return cpu{own: own.own, children: other.own}, err
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
	return &contender{
		name: "pipe", over: "pipes", cpu: used, shared: true,
		pipe: &stdioClient{in: bufio.NewReaderSize(p.out, longestLine), out: p.in},
		stop: func() { _ = p.end() }, // how it ends is not measured
	}, nil
}

// field is all who are compared over one transport.
type field struct {
	relay, sdk, pipe *contender
	orlas            []*contender
}

func (f *field) close() {
	for _, c := range append([]*contender{f.relay, f.sdk, f.pipe}, f.orlas...) {
		if c != nil {
			c.close()
		}
	}
}

// openHTTPField starts those who speak HTTP. What it returns beside an error is
// to be closed as well.
func (b *bench) openHTTPField(ctx context.Context, toolsDir string, connections int) (*field, error) {
	f := &field{}
	open := func(name string, e era, counted bool, argv ...string) (*contender, error) {
		s, err := b.start(ctx, argv...)
		if err != nil {
			return nil, err
		}
		c, err := openHTTPContender(ctx, name, s, e, connections)
		if err != nil {
			return nil, err
		}
		c.cpu = func() (cpu, error) { return cpuOf(s.pid()) }
		if counted {
			err = b.countCapsule(c, s)
		}
		return c, err
	}
	var err error
	if f.relay, err = open("gateway", withSession, true, b.relay, "http", b.capsule); err != nil {
		return f, err
	}
	if f.sdk, err = open("SDK", withSession, false, b.sdk, "http"); err != nil {
		return f, err
	}
	for _, e := range []era{withSession, stateless} {
		c, err := open("Orla", e, true, b.orlaHTTP(toolsDir)...)
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
	open := func(name string, counted bool, argv ...string) (*contender, error) {
		s, err := b.startPiped(ctx, argv...)
		if err != nil {
			return nil, err
		}
		c, err := openPipeContender(name, s)
		if err != nil {
			return nil, err
		}
		c.cpu = func() (cpu, error) { return cpuOf(s.pid()) }
		if counted {
			err = b.countCapsule(c, s)
		}
		return c, err
	}
	var err error
	if f.relay, err = open("relay", true, b.relay, "stdio", b.capsule); err != nil {
		return f, err
	}
	if f.sdk, err = open("SDK", false, b.sdk, "stdio"); err != nil {
		return f, err
	}
	c, err := open("Orla", true, b.orla, "--stdio", "--tools-dir", toolsDir)
	if c != nil {
		f.orlas = append(f.orlas, c)
	}
	if err != nil {
		return f, err
	}
	f.pipe, err = b.openPipe(ctx)
	return f, err
}
