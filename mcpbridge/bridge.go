// Package mcpbridge speaks MCP to clients and nothing else.
//
// One SDK server stands behind every transport: Streamable HTTP in both
// protocol eras, the legacy SSE transport, and stdio. What a client may call
// comes from a Catalog; the bridge follows it, so that every session sees
// additions, removals and changes as they happen (SPEC G3).
//
// Its invariant: a client gets an answer or an error it can act on; internal
// text never crosses, and no panic and no bad schema ends the process.
package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"runtime/debug"
	"slices"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/supervisor"
)

// Catalog is what the bridge serves.
type Catalog interface {
	Catalog() *supervisor.Catalog
	Call(ctx context.Context, call supervisor.Call) (supervisor.Answer, error)
}

// Options configures a Bridge.
type Options struct {
	// Version is told to clients as the server's version. Required.
	Version string
	// MaxInline bounds the size of an answer in bytes; a larger one is kept
	// as a resource (SPEC G5a). If zero, DefaultMaxInline; MinMaxInline is the
	// least.
	MaxInline int64
	// Starting names what is not ready yet, for /readyz (SPEC G6). If nil,
	// everything is.
	Starting func() []string
	// Log is required.
	Log *slog.Logger
}

// Bridge serves a Catalog to MCP clients. Its methods may be called from any
// goroutine.
type Bridge struct {
	catalog   Catalog
	log       *slog.Logger
	maxInline atomic.Int64
	server    *mcp.Server
	large     *largeAnswers
	starting  func() []string
	listed    map[string]*mcp.Tool              // what the server has; owned by New, then by Serve
	traits    atomic.Pointer[map[string]traits] // of what is listed
	page      atomic.Pointer[json.RawMessage]   // what is listed as JSON; holds nil when it is more than one page
	metas     metas
	self      *mcp.Implementation
}

// New returns a Bridge that lists what catalog has now. Serve keeps it up to date.
func New(catalog Catalog, opts Options) *Bridge {
	b := &Bridge{
		catalog:  catalog,
		log:      opts.Log,
		large:    newLargeAnswers(),
		starting: opts.Starting,
		listed:   map[string]*mcp.Tool{},
	}
	b.SetMaxInline(opts.MaxInline)
	b.self = &mcp.Implementation{Name: "orla", Title: "Orla", Version: opts.Version}
	b.server = mcp.NewServer(b.self,
		&mcp.ServerOptions{
			Logger: slog.New(quietHandler{opts.Log.Handler()}),
			// Said outright, since a server that starts without tools would
			// seem to have none for good.
			Capabilities: &mcp.ServerCapabilities{
				Tools:     &mcp.ToolCapabilities{ListChanged: true},
				Resources: &mcp.ResourceCapabilities{},
			},
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
		},
	)
	b.server.AddReceivingMiddleware(b.contained, b.recorded)
	b.server.AddResourceTemplate(largeTemplate, b.readLarge)
	b.server.AddResourceTemplate(largePartTemplate, b.readLarge)
	b.list(catalog.Catalog())
	return b
}

// SetMaxInline sets Options.MaxInline for the answers from now on.
func (b *Bridge) SetMaxInline(size int64) {
	if size == 0 {
		size = DefaultMaxInline
	}
	b.maxInline.Store(max(size, MinMaxInline))
}

// String names the bridge in logs.
func (b *Bridge) String() string { return "bridge" }

// Serve follows the catalog until ctx ends.
func (b *Bridge) Serve(ctx context.Context) error {
	defer b.large.close()
	for {
		c := b.catalog.Catalog()
		b.list(c)
		if err := c.Wait(ctx); err != nil {
			return err
		}
	}
}

// list makes the server's tools those of c. Only what differs is touched, so
// that clients hear of real changes alone.
func (b *Bridge) list(c *supervisor.Catalog) {
	next := make(map[string]*mcp.Tool, len(c.Tools))
	var changed []*mcp.Tool
	for _, t := range c.Tools {
		if old, ok := b.listed[t.Name]; ok && (old == t || reflect.DeepEqual(old, t)) {
			next[t.Name] = old
			continue
		}
		next[t.Name] = t
		changed = append(changed, t)
	}
	known := make(map[string]traits, len(next))
	for name, t := range next {
		known[name] = traitsOf(t)
	}
	b.traits.Store(&known) // before a client can hear of it
	for _, t := range changed {
		if err := b.add(t); err != nil {
			b.log.Error("a tool cannot be listed", "tool", t.Name, "err", err)
			delete(next, t.Name)
		}
	}
	var gone []string
	for name := range b.listed {
		if _, still := next[name]; !still {
			gone = append(gone, name)
		}
	}
	if len(gone) > 0 {
		b.server.RemoveTools(gone...)
	}
	b.listed = next
	listed := make([]*mcp.Tool, 0, len(next))
	for _, name := range slices.Sorted(maps.Keys(next)) {
		listed = append(listed, next[name])
	}
	page := pageOf(listed)
	b.page.Store(&page)
}

// add registers a tool. The SDK panics on schemas that it does not like, which
// must not be in the hands of whoever wrote the tool (SPEC G5b).
func (b *Bridge) add(t *mcp.Tool) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the SDK refuses it: %v", p)
		}
	}()
	b.server.AddTool(t, b.callTool)
	return nil
}

// contained keeps a panic in one request from ending the process, and gives
// every error that a client sees a code. Text of unexpected errors stays here.
func (b *Bridge) contained(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		defer func() {
			if p := recover(); p != nil {
				b.log.Error("panic in a request", "method", method, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				res, err = nil, internalError()
			}
		}()
		res, err = next(ctx, method, req)
		if err == nil {
			return res, nil
		}
		switch wire, coded := errors.AsType[*jsonrpc.Error](err); {
		case coded && wire.Code != 0:
			return nil, err
		case method == methodInitialize: // the one error that the SDK has there
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
		case ctx.Err() != nil:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the request was cancelled"}
		}
		b.log.Error("a request failed", "method", method, "err", err)
		return nil, internalError()
	}
}

func internalError() error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error; Orla's log has the details"}
}

// quietHandler turns the SDK's own log down by one step: what it calls an
// error is mostly a client's mistake, which the client is told of.
type quietHandler struct{ slog.Handler }

func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.Handler.Enabled(ctx, level-4)
}

func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	r.Level -= 8
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	quiet := slog.NewRecord(r.Time, r.Level, "sdk", r.PC)
	quiet.AddAttrs(slog.String("text", r.Message))
	r.Attrs(func(a slog.Attr) bool { quiet.AddAttrs(a); return true })
	return h.Handler.Handle(ctx, quiet)
}

func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs)}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}
