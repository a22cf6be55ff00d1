// Package mcptool serves one tool of an MCP server under a name of its own (SPEC-TOOLS 3.5, type
// mcp), with its own timeout, retries and permissions.
//
// It has no session. The server is another provider, a capsule, which is looked up by its name at
// each call: it may be added, replaced or removed at any time.
package mcptool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// Options configures a Tool, in addition to its manifest.
type Options struct {
	// Find returns the running provider with a manifest's name. Required.
	Find func(name string) (supervisor.Peer, bool)
	// Log is required.
	Log *slog.Logger
}

// Tool is one tool of a server. Its methods may be called from any goroutine, except that calls of
// Follow must not overlap.
type Tool struct {
	tool   manifest.Tool
	opts   Options
	listed atomic.Pointer[mcp.Tool]

	// withheld is why the server's tool must not be served; nil if it may be.
	withheld atomic.Pointer[error]

	// Owned by Follow.
	made   *mcp.Tool // the server's tool that listed was made from; nil for none
	warned string
}

var _ supervisor.Follower = (*Tool)(nil)

// server is what a Tool uses of its server.
type server interface {
	// Original returns a tool by the server's own name for it. known is false until the server has
	// listed its tools.
	Original(name string) (tool *mcp.Tool, known bool)
	// CallOriginal is Call with the server's own name for the tool.
	CallOriginal(ctx context.Context, call peer.Call) (peer.Answer, error)
}

// withholder is a server some of whose tools must not be served.
type withholder interface {
	// Withholds returns why a tool must not be called, by the server's own name for it.
	Withholds(name string) error
}

// heldError is why the server's tool must not be served, which is in the log already.
type heldError struct{ error }

func (e heldError) Unwrap() error { return e.error }

// New returns the Tool for a manifest of kind MCP.
func New(t manifest.Tool, opts Options) (*Tool, error) {
	if t.Resource == nil || t.Resource.Server == "" || t.Resource.ServerTool == "" {
		return nil, fault.New(fault.RuntimePolicyInvalid, "%s: a tool of type mcp needs mcp_server_ref and mcp_tool_name", t.Name)
	}
	m := &Tool{tool: t, opts: opts}
	m.listed.Store(t.Listed())
	return m, nil
}

// Tools returns the tool, described by its manifest and by the server's list.
func (m *Tool) Tools() []*mcp.Tool { return []*mcp.Tool{m.listed.Load()} }

// Withheld returns why the tool must not be served; nil if it may be.
func (m *Tool) Withheld() error {
	if why := m.withheld.Load(); why != nil {
		return *why
	}
	return nil
}

// Talks reports that the server may send messages to clients during calls.
func (m *Tool) Talks() bool { return true }

// Follow updates what the manifest does not say from the server's list. If the server is not there,
// the tool stays as it was.
func (m *Tool) Follow(find func(string) (supervisor.Peer, bool)) {
	_, original, err := m.find(find)
	held, isHeld := errors.AsType[heldError](err)
	if m.withheld.Store(nil); isHeld {
		m.withheld.Store(&held.error)
	}
	switch {
	case err == nil || isHeld:
		m.warned = ""
	case m.warned != err.Error():
		m.warned = err.Error()
		m.opts.Log.Warn("a tool of an MCP server cannot be called", "tool", m.tool.Name, "server", m.tool.Resource.Server, "why", m.warned)
	}
	if original == nil || original == m.made {
		return
	}
	m.made = original
	m.listed.Store(m.with(original))
}

var errNoServer = errors.New("there is no McpServer of that name")

// find returns the server, and the tool as it lists it; the tool is nil if that is not known.
func (m *Tool) find(find func(string) (supervisor.Peer, bool)) (server, *mcp.Tool, error) {
	r := m.tool.Resource
	p, ok := find(r.Server)
	if !ok {
		return nil, nil, errNoServer
	}
	s, ok := p.(server)
	if !ok {
		return nil, nil, errNoServer
	}
	if w, ok := p.(withholder); ok {
		if err := w.Withholds(r.ServerTool); err != nil {
			return nil, nil, heldError{err}
		}
	}
	original, known := s.Original(r.ServerTool)
	if known && original == nil {
		return nil, nil, fmt.Errorf("the server has no tool %q", r.ServerTool)
	}
	return s, original, nil
}

// with returns the tool with the fields of its manifest, and those of the server where the manifest
// has none.
func (m *Tool) with(original *mcp.Tool) *mcp.Tool {
	listed := m.tool.Listed()
	if listed.Title == "" {
		listed.Title = original.Title
	}
	if listed.Description == "" {
		listed.Description = original.Description
	}
	if string(m.tool.InputSchema) == anyObject && objects(original.InputSchema) {
		listed.InputSchema = original.InputSchema
	}
	if m.tool.OutputSchema == nil {
		listed.OutputSchema = original.OutputSchema
	}
	if listed.Annotations == nil {
		listed.Annotations = original.Annotations
	}
	listed.Icons, listed.Meta = original.Icons, original.Meta
	return listed
}

// anyObject is the input schema if the manifest has none.
const anyObject = `{"type":"object"}`

// objects reports whether a schema is one for objects, as an input schema must be: otherwise the
// tool could not be listed.
func objects(schema any) bool {
	raw, ok := schema.(json.RawMessage)
	var s struct {
		Type string `json:"type"`
	}
	return ok && json.Unmarshal(raw, &s) == nil && s.Type == "object"
}

// Call calls the tool by the server's own name.
func (m *Tool) Call(ctx context.Context, call peer.Call) (peer.Answer, error) {
	r := m.tool.Resource
	call.Tool = r.ServerTool
	var last server
	for {
		s, _, err := m.find(m.opts.Find)
		if held, ok := errors.AsType[heldError](err); ok {
			return peer.Answer{}, fault.Unsent(held.error)
		}
		if err != nil {
			return peer.Answer{}, fault.Wrap(fault.UnsupportedTool, err, "%s is the tool %q of the McpServer %q: %v", m.tool.Name, r.ServerTool, r.Server, err)
		}
		answer, err := s.CallOriginal(ctx, call)
		if !errors.Is(err, peer.ErrGone) || s == last {
			return answer, err
		}
		last = s // its manifest has changed; the new server may be there
	}
}
