package capsuletest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// Message is one JSON-RPC message that arrived: a request, a notification or a
// response to a request of the capsule's own.
type Message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`

	ctx    context.Context //nolint:containedctx // of a request: it ends when the request is cancelled
	cancel context.CancelFunc
}

// Peer is a capsule's end of the conversation with Orla, with nothing between
// the script and the wire. What it writes may be written from any goroutine;
// only one may Read.
type Peer struct {
	Name    string // what the manifest calls the capsule
	Version string // what the manifest says it is

	in  *bufio.Reader
	mu  sync.Mutex // guards out, so that a message is never torn
	out io.Writer
}

func newPeer(in io.Reader, out io.Writer) *Peer {
	return &Peer{
		Name:    Param("NAME"),
		Version: Param("VERSION"),
		in:      bufio.NewReaderSize(in, 64<<10),
		out:     out,
	}
}

// Raw writes bytes as they are. What one Raw writes stays together.
func (p *Peer) Raw(raw []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.out.Write(raw); err != nil {
		complain("stdout: %v", err)
	}
}

// Line writes text and a line feed.
func (p *Peer) Line(text string) { p.Raw([]byte(text + "\n")) }

// Send writes a value as one line of JSON.
func (p *Peer) Send(v any) { p.Raw(append(encode(v), '\n')) }

// Hello says orla.hello, with the name and the version given (RFC 2 §9).
func (p *Peer) Hello(name, version string, capabilities ...string) {
	if capabilities == nil {
		capabilities = []string{}
	}
	p.Notify("orla.hello", map[string]any{"name": name, "version": version, "capabilities": capabilities})
}

// Notify writes a notification.
func (p *Peer) Notify(method string, params any) {
	p.Send(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

// Request writes a request of the capsule's own.
func (p *Peer) Request(id any, method string, params any) {
	p.Send(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

// Result answers the request with that id.
func (p *Peer) Result(id, result any) { p.Raw(append(resultLine(id, result), '\n')) }

// Error answers the request with that id by an error.
func (p *Peer) Error(id any, code int, message string) {
	p.Send(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": message}})
}

// Read returns the next message. It returns nil at the end of stdin.
func (p *Peer) Read() *Message {
	for {
		line, err := p.in.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			m := &Message{}
			if err := json.Unmarshal(line, m); err == nil {
				return m
			}
			complain("stdin: no JSON-RPC: %q", line[:min(len(line), 200)])
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				complain("stdin: %v", err)
			}
			return nil
		}
	}
}

func resultLine(id, result any) []byte {
	return encode(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func encode(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // scripts write what can be encoded
	}
	return raw
}
