// Package handshake waits until a new process, or a server, has said who it is: by an orla.hello, or by the handshake of
// MCP.
package handshake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/capsule/refusal"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/internal/observe/brief"
	"github.com/orla-project/orla/manifest"
)

// Process is what a handshake is made with. Its methods are those of capsule.Connection.
type Process interface {
	Exited() <-chan struct{}
	ExitText() string
	Heard() <-chan struct{}
	AwaitLast()
}

// Handshake is that of one process.
type Handshake struct {
	tool    *manifest.Tool
	process Process
	log     *slog.Logger

	greeted   atomic.Bool            // the first message has come, or is not awaited
	greetings chan greeting          // receives the first message
	stray     atomic.Pointer[string] // the first line that is not a message; nil if there was none
}

// greeting is the first message of a process.
type greeting struct {
	hello protocol.Hello
	err   error // why it is not a valid hello; else nil
}

// maxHello bounds, in bytes, what an error shows of a name or a version in an orla.hello, and
// of a line that came in place of one.
const maxHello = 128

var errSilent = errors.New("it said nothing in time")

// New returns the handshake of a process that was just started.
func New(tool *manifest.Tool, process Process, log *slog.Logger) *Handshake {
	h := &Handshake{tool: tool, process: process, log: log, greetings: make(chan greeting, 1)}
	h.greeted.Store(h.isMCP())
	return h
}

func (h *Handshake) isMCP() bool { return h.tool.Runtime.Handshake == manifest.HandshakeMCP }

// Skip is called in place of Await if the process has said who it is before.
func (h *Handshake) Skip() { h.greeted.Store(true) }

// First takes a message of the process if it is the first one and is to be an orla.hello; it reports false otherwise.
// kind and method say what it is; the kind of a notification is "".
func (h *Handshake) First(kind, method string, params json.RawMessage) bool {
	if !h.greeted.CompareAndSwap(false, true) {
		return false
	}
	var g greeting
	if kind != "" || method != "orla.hello" {
		g.err = fmt.Errorf("its first message is %s%s, not orla.hello", kind, method)
	} else if g.err = protocol.TooMuchSaid("orla.hello", params); g.err == nil && json.Unmarshal(params, &g.hello) != nil {
		g.err = errors.New("the params of its orla.hello are not those of RFC 2 §9")
	}
	h.greetings <- g
	return true
}

// Noise takes a line that is not a message, which may say why there is no handshake.
func (h *Handshake) Noise(line []byte) {
	if h.tool.Runtime.Remote == nil && h.stray.Load() == nil {
		text := brief.Cut(strings.ToValidUTF8(string(line), "\uFFFD"), maxHello)
		h.stray.Store(&text)
	}
}

// Await waits for the end of the handshake (SPEC D4, D8), and returns what is used of an orla.hello; see
// protocol.Hello.Checked. An error is a failure of the start, or ctx's.
func (h *Handshake) Await(ctx context.Context, peer *protocol.Peer) (hello protocol.Hello, err error) {
	within := h.tool.Runtime.StartupTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, within, errSilent)
	defer cancel()
	if h.isMCP() {
		err = h.negotiate(ctx, peer)
	} else {
		hello, err = h.awaitHello(ctx)
	}
	switch {
	case errors.Is(err, errSilent) && h.isMCP():
		err = h.withStray(fmt.Errorf("no answer to initialize within %s", within))
	case errors.Is(err, errSilent) && h.stray.Load() == nil:
		err = fmt.Errorf("no orla.hello within %s; an MCP server needs runtime.handshake: mcp", within)
	case errors.Is(err, errSilent):
		err = h.withStray(fmt.Errorf("no orla.hello within %s", within))
	default:
		err = refusal.Shortened(err)
	}
	return hello, err
}

func (h *Handshake) awaitHello(ctx context.Context) (protocol.Hello, error) {
	var err error
	select {
	case g := <-h.greetings:
		return h.accept(g)
	case <-h.process.Exited():
		err = fmt.Errorf("it %s before orla.hello", h.process.ExitText())
	case <-h.process.Heard():
		err = ExitOr(h.process, " before orla.hello", "it closed its stdout before orla.hello")
	case <-ctx.Done():
		return protocol.Hello{}, context.Cause(ctx)
	}
	select {
	case g := <-h.greetings: // its message says more than its end
		return h.accept(g)
	default:
		return protocol.Hello{}, h.withStray(err)
	}
}

// accept checks a first message.
func (h *Handshake) accept(g greeting) (protocol.Hello, error) {
	switch said := g.hello; {
	case g.err != nil:
		return protocol.Hello{}, g.err
	case said.Name != h.tool.Name:
		return protocol.Hello{}, fmt.Errorf("its orla.hello names %q, but %s says %q", brief.Cut(said.Name, maxHello), h.tool.Source, h.tool.Name)
	case said.Version != h.tool.Version:
		h.log.Warn("a capsule's orla.hello has another version than its manifest", "tool", h.tool.Name,
			"hello_version", brief.Cut(said.Version, maxHello), "manifest_version", h.tool.Version)
	}
	return g.hello.Checked(), nil
}

// negotiate makes the MCP handshake. The end of the process ends it.
func (h *Handshake) negotiate(ctx context.Context, peer *protocol.Peer) error {
	const before = " before it answered initialize"
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		select {
		case <-h.process.Exited():
			cancel(h.withStray(fmt.Errorf("it %s%s", h.process.ExitText(), before)))
		case <-h.process.Heard():
			cancel(h.withStray(ExitOr(h.process, before, "it closed its stdout"+before)))
		case <-peer.Over():
			cancel(h.withStray(ExitOr(h.process, before, peer.Err().Error())))
		case <-done:
		}
	})
	defer watcher.Wait()
	defer cancel(nil)
	defer close(done)
	err := peer.Negotiate(ctx)
	switch {
	case protocol.IsRefusal(err): // its answer says more than its end, or that of the time
		return err
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, rpc.ErrNotSent): // nobody reads its stdin any more
		return h.withStray(ExitOr(h.process, before, err.Error()))
	}
	return err
}

// withStray adds to the error of a failed handshake what the process printed instead.
func (h *Handshake) withStray(err error) error {
	AwaitLast(h.process)
	if text := h.stray.Load(); text != nil {
		return fmt.Errorf("%w; it printed %q on stdout", err, *text)
	}
	return err
}

// AwaitLast waits for what a process that has exited printed at the end.
func AwaitLast(p Process) {
	select {
	case <-p.Exited():
		p.AwaitLast()
	default:
	}
}

// ExitOr returns an error that says how a process ended, if it ends soon, and before what;
// else an error with the text otherwise.
func ExitOr(p Process, before, otherwise string) error {
	const soon = 2 * time.Second // an exit says more than a closed pipe, and a machine may be busy
	select {
	case <-p.Exited():
		return fmt.Errorf("it %s%s", p.ExitText(), before)
	case <-time.After(soon):
		return errors.New(otherwise)
	}
}
