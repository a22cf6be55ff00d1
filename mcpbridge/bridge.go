// Package mcpbridge serves MCP to clients.
//
// Every request goes the same way, whichever transport it comes by: Streamable HTTP
// in both protocol eras, the legacy SSE transport, or stdio. The transport (a package below
// transport) reads a message, which package wire takes apart; NewRequest finds out who asks
// for what; Exchange answers it. Package client knows who asks, package results makes results
// of what tools answer, and package budget counts the bytes of requests. What a client may
// call comes from a Catalog, which the bridge follows: sessions see additions, removals and
// changes as they happen (SPEC G3).
//
// Its invariant: a client gets an answer or an error that it can act on, without internal
// text; and no panic and no invalid schema ends the process.
package mcpbridge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/conversation"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/subscription"
	"github.com/orla-project/orla/supervisor"
)

// Catalog is what the bridge serves.
type Catalog interface {
	Catalog() *supervisor.Catalog
	Call(ctx context.Context, call peer.Call) (peer.Answer, error)
	// Request passes on a request that is not a call. An error is a *fault.Error, or a
	// *jsonrpc.Error for the client.
	Request(ctx context.Context, req peer.Request) (json.RawMessage, error)
	// RequestOf passes it on to a peer, whether or not what it is about belongs to that one.
	RequestOf(ctx context.Context, p supervisor.Peer, req peer.Request) (json.RawMessage, error)
	// Settle waits until everything that is offered is known, or ctx ends.
	Settle(ctx context.Context)
	// Waiting counts a request of an owner that waits, before it is passed to Call or
	// Request, until leave is called. An error refuses it, because too many wait.
	Waiting(ctx context.Context, owner turns.Owner) (_ context.Context, leave func(), _ error)
	// End ends the calls and requests in flight of some owners.
	End(of func(turns.Owner) bool)
	// Updated delivers the URIs of resources that have changed. Only the bridge reads from
	// it. A nil channel delivers none.
	Updated() <-chan string
}

const (
	// DefaultMaxInline is the size in bytes from which an answer is kept as a
	// resource: clients drop the connection at 8 to 10 MiB (SPEC G5a).
	DefaultMaxInline = 4 << 20
	// MinMaxInline is the least MaxInline: head, tail and links of a cut answer fit into it.
	MinMaxInline = 64 << 10
	// around is how many bytes a message may have in addition to its result: of JSON-RPC,
	// the server's name and the frame of an event.
	around = 2 << 10
)

// Options configures a Bridge.
type Options struct {
	// Version is Orla's version, which clients are told. Required.
	Version string
	// MaxInline bounds the size of an answer in bytes; a larger one is kept
	// as a resource (SPEC G5a). If zero, DefaultMaxInline; MinMaxInline is the
	// least.
	MaxInline int64
	// Starting names what is not ready yet, for /readyz (SPEC G6). If nil, everything is
	// ready.
	Starting func() []string
	// Refusing returns the status for /readyz while every call is refused, else "". May be nil.
	Refusing func() string
	// Refused, if not nil, is called for each call that is refused before it reaches a tool.
	Refused func(ctx context.Context, call peer.Call, err error)
	// Audit, if not nil, is called before each request other than a call that reads something, completes something or follows a resource, and after
	// one that was refused before that. An error refuses it. Otherwise it is noted in Noted what becomes of it, and ended is called once with what was asked
	// for, and "ok", "input_required" or a code.
	Audit func() (_ *peer.Noted, ended func(ctx context.Context, asked *peer.Request, outcome string), _ error)
	// Rules say what callers may use. If nil, they may use everything.
	Rules Rules
	// Admitted, if not nil, is called for each HTTP request that may call tools, with its
	// context and the name of its caller, which is "" without authentication.
	Admitted func(ctx context.Context, caller string)
	// HeadersRead, if not nil, is called for each HTTP request, with its context, when its
	// headers are not needed any more, before it is answered. stream says that the answer is a
	// stream, which ends with its session or when its client leaves.
	HeadersRead func(ctx context.Context, stream bool)
	// Observe, if not nil, is called for each call, also for one that is refused. It may put
	// a trace into the context. The function that it returns is called with how the call
	// ended, before the answer is sent.
	Observe func(ctx context.Context, call CallStart) (context.Context, func(CallEnd))
	// StateKey is what another Bridge has returned as its StateKey, to accept the states that it has signed. If nil, the
	// key is new.
	StateKey []byte
	// Metrics, if not nil, is served at /metrics (SPEC G6), to callers whom no roles or toolsets keep from some tools.
	Metrics http.Handler
	// Shared says which replica this process is; nil if it is the only one.
	Shared *Shared
	// Log is required.
	Log *slog.Logger
}

// Shared is what the names that clients are given need so that any replica can read them (SPEC P4).
type Shared struct {
	Replica string            // its name: in the names of what only this process has, before NameEnd
	States  [sha256.Size]byte // the key of requestStates, which all replicas have
}

// NameEnd ends the name of a replica. Neither that nor random text contains it.
const NameEnd = "."

// Replica returns the name of the replica that gave a name to a client; "" if that does not say it.
func Replica(name string) string {
	rest, is := strings.CutPrefix(name, results.Prefix)
	if !is {
		if rest, is = strings.CutPrefix(name, results.HeldPrefix); !is {
			return ""
		}
	}
	replica, _, found := strings.Cut(rest, NameEnd)
	if !found {
		return ""
	}
	return replica
}

// Bridge serves a Catalog to MCP clients. Its methods may be called from any
// goroutine.
type Bridge struct {
	catalog       Catalog
	opts          Options
	log           *slog.Logger
	large         *largeAnswers
	room          *turns.Room   // for the bytes of answers that are being sent
	requests      *turns.Shares // of the bytes of requests that are being read or answered
	verbosity     *verbosity
	audience      *audience
	notifier      *client.Notifier
	subscriptions *subscription.Table
	conversations *conversation.Table
	asked         asked
	states        *results.States
	self          *mcp.Implementation
	selfJSON      json.RawMessage // self as JSON
	lists         lists
}

// New returns a Bridge that lists what catalog has now. Serve keeps it up to date.
func New(catalog Catalog, opts Options) *Bridge {
	if opts.Starting == nil {
		opts.Starting = func() []string { return nil }
	}
	if opts.Refusing == nil {
		opts.Refusing = func() string { return "" }
	}
	if opts.Rules == nil {
		opts.Rules = noRules{}
	}
	if opts.Admitted == nil {
		opts.Admitted = func(context.Context, string) {}
	}
	if opts.HeadersRead == nil {
		opts.HeadersRead = func(context.Context, bool) {}
	}
	b := &Bridge{
		catalog:       catalog,
		opts:          opts,
		log:           opts.Log,
		large:         newLargeAnswers(opts.Rules),
		room:          turns.NewRoom(answersBudget),
		requests:      turns.NewShares(budget.Requests),
		verbosity:     newVerbosity(),
		audience:      newAudience(),
		notifier:      client.NewNotifier(),
		subscriptions: subscription.New(func(c rules.Caller) int { return opts.Rules.Limits(c.Name, c.Groups).Subscriptions }),
		states:        results.NewStates(opts.StateKey),
		self:          &mcp.Implementation{Name: "orla", Title: "Orla", Version: opts.Version},
	}
	b.lists.made.Store(&listed{})
	b.SetMaxInline(opts.MaxInline)
	b.selfJSON = rawjson.Must(b.self)
	if of := opts.Shared; of != nil {
		b.large.store.Replica = of.Replica + NameEnd
		b.states = results.NewStatesOf(of.States)
	}
	b.conversations = conversation.New(conversation.Options{Replica: b.large.store.Replica, Self: b.selfJSON, Room: b.room, Log: b.log})
	b.follow()
	return b
}

// StateKey returns the key that signs states of peers. It is a secret.
func (b *Bridge) StateKey() []byte { return b.states.Key() }

// SetMaxInline changes Options.MaxInline for all answers from now on.
func (b *Bridge) SetMaxInline(size int64) {
	size = cmp.Or(size, DefaultMaxInline)
	b.large.inline.Store(max(size, MinMaxInline))
}

// inline returns how many bytes a result may have.
func (b *Bridge) inline() int64 { return b.large.inline.Load() - around }

// String names the bridge in logs.
func (b *Bridge) String() string { return "bridge" }

// Serve follows the catalog until ctx ends. Calls that are being answered then fail with the cause of that.
func (b *Bridge) Serve(ctx context.Context) error {
	defer b.large.store.Close()
	whole := ctx
	defer func() { b.conversations.Close(context.Cause(whole)) }()
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
	beside.Go(func() {
		defer recovered.To(b.log, "tell peers what nobody follows", fail)
		b.tellLeft(ctx)
	})
	for {
		ruled := b.opts.Rules.Changed()
		select {
		case <-b.follow().of.Changed:
		case <-ruled:
			b.audience.listChanged([client.Lists]bool{true, true, true})
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
