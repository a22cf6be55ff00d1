package handshake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/orla-project/orla/capsule/handshake"
	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

// process is a handshake.Process that does what a test says.
type process struct {
	exited, heard chan struct{}
	last          func() // prints what is read after its exit; nil for nothing
}

func (p *process) Exited() <-chan struct{} { return p.exited }
func (p *process) ExitText() string        { return "exited with code 3" }
func (p *process) Heard() <-chan struct{}  { return p.heard }
func (p *process) AwaitLast() {
	<-p.heard
	if p.last != nil {
		p.last()
	}
}

// exit ends a process, and what it has printed.
func (p *process) exit() {
	close(p.heard)
	close(p.exited)
}

const within = 5 * time.Second

// begun is a handshake with a process that is silent so far.
func begun(of manifest.Handshake, log io.Writer) (*handshake.Handshake, *process) {
	p := &process{exited: make(chan struct{}), heard: make(chan struct{})}
	tool := &manifest.Tool{Name: "notes", Version: "1.2.0", Source: "tool.yaml"}
	tool.Runtime.Handshake, tool.Runtime.StartupTimeout = of, within
	return handshake.New(tool, p, slog.New(slog.NewTextHandler(log, nil))), p
}

// SPEC D4: a capsule is READY after an orla.hello with its name. All else is a failed start that says why.
func TestD4TheFirstMessageIsAHello(t *testing.T) {
	hello := func(h *handshake.Handshake, params string) { h.First("", "orla.hello", json.RawMessage(params)) }
	for name, c := range map[string]struct {
		does  func(*handshake.Handshake, *process)
		want  string // the error; "" for a hello
		after time.Duration
	}{
		"hello": {does: func(h *handshake.Handshake, _ *process) {
			hello(h, `{"name":"notes","version":"1.2.0","capabilities":["tools"]}`)
		}},
		"hello, and an exit": {does: func(h *handshake.Handshake, p *process) {
			hello(h, `{"name":"notes","version":"1.2.0","capabilities":["tools"]}`)
			p.exit()
		}},
		"another name":         {does: func(h *handshake.Handshake, _ *process) { hello(h, `{"name":"other"}`) }, want: `its orla.hello names "other", but tool.yaml says "notes"`},
		"a long name":          {does: func(h *handshake.Handshake, _ *process) { hello(h, `{"name":"`+strings.Repeat("n", 1000)+`"}`) }, want: `nnn`},
		"params of other form": {does: func(h *handshake.Handshake, _ *process) { hello(h, `["notes"]`) }, want: "the params of its orla.hello are not those of RFC 2 §9"},
		"too many values": {does: func(h *handshake.Handshake, _ *process) {
			hello(h, `{"name":"notes","x":[1`+strings.Repeat(",1", 10_000)+`]}`)
		}, want: "its orla.hello has over 10000 values"},
		"a request":             {does: func(h *handshake.Handshake, _ *process) { h.First("the request ", "ping", nil) }, want: "its first message is the request ping, not orla.hello"},
		"a notification":        {does: func(h *handshake.Handshake, _ *process) { h.First("", "log", nil) }, want: "its first message is log, not orla.hello"},
		"silence":               {does: func(*handshake.Handshake, *process) {}, want: "no orla.hello within 5s; an MCP server needs runtime.handshake: mcp", after: within},
		"a banner":              {does: func(h *handshake.Handshake, _ *process) { h.Noise([]byte("ready\xff")); h.Noise([]byte("go")) }, want: "no orla.hello within 5s; it printed \"ready\uFFFD\" on stdout", after: within},
		"an exit":               {does: func(_ *handshake.Handshake, p *process) { p.exit() }, want: "it exited with code 3 before orla.hello"},
		"an exit with a reason": {does: func(h *handshake.Handshake, p *process) { h.Noise([]byte("usage: x")); p.exit() }, want: `it exited with code 3 before orla.hello; it printed "usage: x" on stdout`},
		"an exit with last words": {does: func(h *handshake.Handshake, p *process) {
			p.last = func() { h.Noise([]byte("bye")) }
			p.exit()
		}, want: `it exited with code 3 before orla.hello; it printed "bye" on stdout`},
		"a closed stdout": {does: func(_ *handshake.Handshake, p *process) { close(p.heard) }, want: "it closed its stdout before orla.hello", after: 2 * time.Second},
		"a closed stdout, and soon an exit": {does: func(_ *handshake.Handshake, p *process) {
			close(p.heard)
			time.AfterFunc(time.Second, func() { close(p.exited) })
		}, want: "it exited with code 3 before orla.hello", after: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 { // of events that come together, each may be seen first
				synctest.Test(t, func(t *testing.T) {
					h, p := begun(manifest.HandshakeHello, io.Discard)
					began := time.Now()
					c.does(h, p)
					got, err := h.Await(t.Context(), nil)
					switch {
					case c.want == "" && (err != nil || !got.OffersLists()):
						t.Errorf("%+v, %v", got, err)
					case c.want == "nnn" && (err == nil || len(err.Error()) > 300):
						t.Errorf("an error of a long name is %v", err)
					case c.want != "" && c.want != "nnn" && (err == nil || err.Error() != c.want):
						t.Errorf("%v, want %s", err, c.want)
					}
					if took := time.Since(began); took != c.after {
						t.Errorf("it took %s, want %s", took, c.after)
					}
				})
			}
		})
	}
}

// SPEC D4: another version than the manifest's is logged, and no failure.
func TestD4AnotherVersionIsLogged(t *testing.T) {
	var log strings.Builder
	h, _ := begun(manifest.HandshakeHello, &log)
	h.First("", "orla.hello", json.RawMessage(`{"name":"notes","version":"2.0.0"}`))
	if _, err := h.Await(t.Context(), nil); err != nil || !strings.Contains(log.String(), "hello_version=2.0.0 manifest_version=1.2.0") {
		t.Errorf("%v, and the log has %q", err, log.String())
	}
}

// SPEC D4, D8: only the first message is taken, and none if the handshake is MCP's, or is skipped.
func TestD4OnlyTheFirstMessageIsTaken(t *testing.T) {
	h, _ := begun(manifest.HandshakeHello, io.Discard)
	if first, second := h.First("", "orla.hello", nil), h.First("", "orla.hello", nil); !first || second {
		t.Errorf("of two messages, it takes %v and %v", first, second)
	}
	skipped, _ := begun(manifest.HandshakeHello, io.Discard)
	skipped.Skip()
	ofMCP, _ := begun(manifest.HandshakeMCP, io.Discard)
	if skipped.First("", "orla.hello", nil) || ofMCP.First("", "orla.hello", nil) {
		t.Error("it takes a message that it does not wait for")
	}
}

// SPEC D4: who stops a start gets that as the reason.
func TestD4AStartCanBeStopped(t *testing.T) {
	why := errors.New("it is not served any more")
	for _, of := range []manifest.Handshake{manifest.HandshakeHello, manifest.HandshakeMCP} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			h, _ := begun(of, io.Discard)
			time.AfterFunc(time.Second, func() { cancel(why) })
			if _, err := h.Await(ctx, (&server{}).peer()); !errors.Is(err, why) {
				t.Errorf("%v: %v, want %v", of, err, why)
			}
		})
	}
}

// server is a Transport whose other side answers initialize with a text, and a Handler of nothing.
type server struct {
	conn   *rpc.Conn
	answer string // with %d in place of the id; "" for none
	then   func() // is called after the answer; nil for nothing
}

func (s *server) peer() *protocol.Peer {
	s.conn = rpc.New(s, rpc.Options{Handler: s})
	tool := manifest.Tool{Name: "notes"}
	tool.Runtime.Protocol = manifest.ProtocolInitialize
	return protocol.New(tool, "1", slog.New(slog.DiscardHandler)).With(s.conn)
}

func (s *server) Send(_ context.Context, call *rpc.Pending, _ [][]byte) error {
	if call == nil {
		return nil
	}
	err := s.conn.Sending(call)
	if s.answer != "" {
		s.conn.Receive(fmt.Appendf(nil, s.answer, call.ID))
	}
	if s.then != nil {
		s.then()
	}
	return err
}
func (*server) Post(turns.Owner, []byte)                       {}
func (*server) Close()                                         {}
func (*server) Notified(string, json.RawMessage)               {}
func (*server) Asked(json.RawMessage, string, json.RawMessage) {}
func (*server) Unclaimed(json.RawMessage)                      {}
func (*server) Noise([]byte, string)                           {}

// SPEC D8: what an MCP server answers to initialize says more than its end just after it.
func TestD8ARefusalSaysMoreThanAnEnd(t *testing.T) {
	const refuses = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no license"}}`
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			h, p := begun(manifest.HandshakeMCP, io.Discard)
			if _, err := h.Await(t.Context(), (&server{answer: refuses, then: p.exit}).peer()); err == nil || !strings.Contains(err.Error(), "no license") {
				t.Errorf("%v", err)
			}
		})
	}
}

// SPEC D8: an MCP server has to answer initialize in time. An error says what it did instead.
func TestD8AServerAnswersInitialize(t *testing.T) {
	const (
		accepts = `{"jsonrpc":"2.0","id":%d,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"n","version":"1"}}}`
		refuses = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32000,"message":"no license"}}`
	)
	for name, c := range map[string]struct {
		answer string
		does   func(*handshake.Handshake, *process)
		want   string // in the error; "" for none
		after  time.Duration
	}{
		"it answers":      {answer: accepts, does: func(*handshake.Handshake, *process) {}},
		"it refuses":      {answer: refuses, does: func(*handshake.Handshake, *process) {}, want: "no license"},
		"silence":         {does: func(*handshake.Handshake, *process) {}, want: "no answer to initialize within 5s", after: within},
		"a banner":        {does: func(h *handshake.Handshake, _ *process) { h.Noise([]byte("listening")) }, want: `no answer to initialize within 5s; it printed "listening" on stdout`, after: within},
		"an exit":         {does: func(_ *handshake.Handshake, p *process) { time.AfterFunc(time.Second, p.exit) }, want: "it exited with code 3 before it answered initialize", after: time.Second},
		"a closed stdout": {does: func(_ *handshake.Handshake, p *process) { close(p.heard) }, want: "it closed its stdout before it answered initialize", after: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // fails if a goroutine stays
				h, p := begun(manifest.HandshakeMCP, io.Discard)
				began := time.Now()
				c.does(h, p)
				_, err := h.Await(t.Context(), (&server{answer: c.answer}).peer())
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				if took := time.Since(began); took != c.after {
					t.Errorf("it took %s, want %s", took, c.after)
				}
			})
		})
	}
}
