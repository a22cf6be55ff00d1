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
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/recovered"
	"github.com/orla-project/orla/internal/turns"
	"github.com/orla-project/orla/supervisor"
)

// Catalog is what the bridge serves.
type Catalog interface {
	Catalog() *supervisor.Catalog
	Call(ctx context.Context, call supervisor.Call) (supervisor.Answer, error)
	// Request passes on what is no call. An error is a *fault.Error, or a
	// *jsonrpc.Error for the client.
	Request(ctx context.Context, req peer.Request) (json.RawMessage, error)
	// Settle waits until all that is offered is known, or ctx ends.
	Settle(ctx context.Context)
	// End ends the calls and requests in flight of some lines.
	End(of func(turns.Line) bool)
	// Updated delivers the URIs of resources that have changed. The bridge is
	// its one reader; nil delivers none.
	Updated() <-chan string
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
	// Denying reports that every call is denied, for /readyz. If nil, it is not so.
	Denying func() bool
	// Admitted, if not nil, is told of each HTTP request that may call, with its context
	// and the name of its caller; "" without authentication.
	Admitted func(ctx context.Context, caller string)
	// Observe, if not nil, is told of each call, also of one that is refused:
	// it may put a trace into ctx, and the function it returns is told how the
	// call ended, before the answer is on its way.
	Observe func(ctx context.Context, call CallStart) (context.Context, func(CallEnd))
	// Metrics, if not nil, is served at /metrics (SPEC G6), to those who may call.
	Metrics http.Handler
	// Log is required.
	Log *slog.Logger
}

// Bridge serves a Catalog to MCP clients. Its methods may be called from any
// goroutine.
type Bridge struct {
	catalog       Catalog
	log           *slog.Logger
	maxInline     atomic.Int64
	server        *mcp.Server
	large         *largeAnswers
	room          *turns.Room   // of the answers that are on their way
	reads         *turns.Shares // reads of kept answers that wait for room
	readPatience  time.Duration // how long they do
	encoding      *turns.Queue  // lets one of them at a time be measured, or written as JSON
	requests      *turns.Shares // bytes of those that are being read or answered
	starting      func() []string
	denying       func() bool // nil for never
	admitted      func(context.Context, string)
	observer      func(context.Context, CallStart) (context.Context, func(CallEnd)) // nil for none
	metrics       http.Handler                                                      // nil for none
	traits        atomic.Pointer[map[string]traits]                                 // of the tools that are listed
	pages         atomic.Pointer[pages]                                             // these tools as JSON
	metas         metas
	carrier       carrier
	standIns      *standIns
	verbosity     *verbosity
	subscriptions subscriptions
	held          held
	states        *states
	self          *mcp.Implementation
	selfJSON      json.RawMessage // self

	listing sync.Mutex          // guards the fields that follow
	current *supervisor.Catalog // what is listed
	listed  map[string]*mcp.Tool

	resources map[string]*mcp.Resource
	templates map[string]*mcp.ResourceTemplate
	prompts   map[string]*mcp.Prompt
}

// New returns a Bridge that lists what catalog has now. Serve keeps it up to date.
func New(catalog Catalog, opts Options) *Bridge {
	b := &Bridge{
		catalog:  catalog,
		log:      opts.Log,
		large:    newLargeAnswers(),
		room:     turns.NewRoom(answersBudget),
		reads:    turns.NewShares(2 * maxReads), // a line that is alone gets half
		requests: turns.NewShares(requestsBudget),

		readPatience: defaultLimits.room,
		encoding:     turns.NewQueue(1, 0),

		starting: opts.Starting,
		denying:  opts.Denying,
		admitted: opts.Admitted,
		observer: opts.Observe,
		metrics:  opts.Metrics,
		carrier:  newCarrier(),
		standIns: newStandIns(),
		states:   newStates(),
	}
	if b.admitted == nil {
		b.admitted = func(context.Context, string) {}
	}
	b.SetMaxInline(opts.MaxInline)
	b.self = &mcp.Implementation{Name: "orla", Title: "Orla", Version: opts.Version}
	var err error
	if b.selfJSON, err = json.Marshal(b.self); err != nil { // it is three strings
		panic(err)
	}
	b.server = mcp.NewServer(b.self,
		&mcp.ServerOptions{
			Logger: slog.New(quietHandler{opts.Log.Handler()}),
			// Said outright, since a server that starts without any of them
			// would seem to have none for good.
			Capabilities: &mcp.ServerCapabilities{
				Tools:       &mcp.ToolCapabilities{ListChanged: true},
				Resources:   &mcp.ResourceCapabilities{ListChanged: true, Subscribe: true},
				Prompts:     &mcp.PromptCapabilities{ListChanged: true},
				Completions: &mcp.CompletionCapabilities{},
				Logging:     &mcp.LoggingCapabilities{}, //nolint:staticcheck // deprecated by the newest era only
			},
			SubscribeHandler:   b.subscribe,
			UnsubscribeHandler: b.unsubscribe,
			SetCacheable:       func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
		},
	)
	b.verbosity = newVerbosity(b.server.Sessions)
	b.subscriptions.living, b.subscriptions.shares = b.server.Sessions, turns.NewShares(maxSubscriptions)
	b.server.AddReceivingMiddleware(b.contained, b.served)
	b.server.AddSendingMiddleware(outgoing)
	b.follow()
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
	defer b.held.close()
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, end := context.WithCancel(ctx)
	defer end()
	fail := func(any) { end() } // the service is started again
	beside.Go(func() {
		defer recovered.To(b.log, "tell clients which resources have changed", fail)
		b.tellUpdates(ctx)
	})
	beside.Go(func() {
		defer recovered.To(b.log, "tell peers what clients follow", fail)
		b.tellPeers(ctx)
	})
	for {
		if err := b.follow().Wait(ctx); err != nil {
			return err
		}
	}
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
		case coded && wire.Code != 0 && wire.Data != nil && !rawjson.Valid(wire.Data): // the SDK could not write it
			return nil, &jsonrpc.Error{Code: wire.Code, Message: err.Error()}
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

func internalError() *jsonrpc.Error {
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
