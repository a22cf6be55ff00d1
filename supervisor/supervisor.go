// Package supervisor knows which tools exist, keeps the providers of those
// that live running, and routes calls to them.
//
// It sees Providers only: a one-shot command, a capsule and a remote service
// are the same to it. Desired state comes in by Apply, calls by Call; what
// others may know comes out as an immutable Catalog and a channel that closes
// when it is out of date.
//
// Its invariant: a call that has begun ends by its provider's word, the deadline
// of its attempts, its caller's leave or Orla's stop, whatever Apply does in the meantime.
package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/thejerf/suture/v4"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rejudge"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/internal/mcp/urimatch"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor/claim"
	"github.com/orla-project/orla/supervisor/inflight"
	"github.com/orla-project/orla/supervisor/services"
)

// A Provider answers calls to one or more tools. A Provider that also has
// Serve(context.Context) error is kept running for as long as it is listed;
// such a Serve returns ctx.Err() or suture.ErrDoNotRestart and nothing else.
//
// Call makes one attempt. It may be used from any number of goroutines. It
// returns by ctx's end at the latest, but for the time it takes to see a process
// off. Its error should be a *fault.Error, and may be a *jsonrpc.Error that the
// tool itself gave; a result beside an error is what there is of an answer.
type Provider interface {
	Tools() []*mcp.Tool
	Call(ctx context.Context, call peer.Call) (peer.Answer, error)
}

// A Talker is a Provider that may speak to its clients while it answers them,
// as a Peer whose Offers say so does.
type Talker interface {
	Talks() bool
}

// A Peer is a Provider that lives and speaks MCP itself. What it offers may
// change, and what it answers reaches the client as the JSON that it is.
//
// Its methods but Serve may be called from any goroutine, also before Serve has
// begun and after it has ended. Serve with a context that has ended begins
// nothing, and releases whoever waits. An error of Call or Request is a
// *fault.Error, or a *jsonrpc.Error that the peer itself gave.
type Peer interface {
	Provider
	suture.Service
	// Request answers any other request with its result, as valid JSON.
	Request(ctx context.Context, req peer.Request) (json.RawMessage, error)
	Offers() *peer.Offers
	Life() peer.Life
	// Updated delivers the URIs of resources that the peer says have changed.
	// It has one reader, which may let it wait: the peer keeps them meanwhile.
	Updated() <-chan string
}

// A Follower is a Provider whose tools are made of what Peers offer.
type Follower interface {
	Provider
	// Follow makes what Tools returns from now on out of what the peers offer,
	// which find finds by the names of their manifests. It is called before each
	// Catalog is made, one call at a time, and must not call the Supervisor.
	Follow(find func(name string) (Peer, bool))
}

// Build makes the Provider for a manifest of one kind.
type Build func(manifest.Tool) (Provider, error)

// An Attempt answers a call. ctx ends with the call.
type Attempt func(ctx context.Context, call peer.Call) (peer.Answer, error)

// Options configures a Supervisor.
type Options struct {
	// Build makes providers, by kind. A kind without a Build is reported and
	// not served.
	Build map[manifest.Kind]Build
	// Admit may refuse a call of a target. If nil, all calls are admitted.
	Admit func(ctx context.Context, call peer.Call, target *rules.Target) (Admitted, error)
	// AdmitRequest may refuse a request that reads from a peer or asks it for
	// something. target returns the peer's; see Catalog.TargetOfPeer. If nil, all are admitted.
	AdmitRequest func(ctx context.Context, req peer.Request, target func() *rules.Target) error
	// Published, if not nil, is called with each Catalog, before anybody can get it. It must not call the
	// Supervisor.
	Published func(*Catalog)
	// Audit, if not nil, is called for each call before anything else is done for it. An error refuses the call.
	// Otherwise what the rules say is noted in Decided, and ended is called once, also after a panic. It returns what is
	// Answer.Ended then.
	Audit func(peer.Call) (_ *peer.Decision, ended Ended, _ error)
	// Wrap may put something around the attempts of a tool's calls, such as a
	// policy of retries. It gets the manifest, the tool as clients see it, which
	// must not be modified, and what makes one attempt, within the tool's
	// timeout. If nil, a call is one attempt.
	Wrap func(of manifest.Tool, listed *mcp.Tool, next Attempt) Attempt
	// ClaimFile is where to keep who offered something first, for the next Supervisor. If
	// "", the next one does not know.
	ClaimFile string
	// Log is required.
	Log *slog.Logger
}

// ErrUnknownTool is in the chain of the error for a call of a tool that is not there.
var ErrUnknownTool = errors.New("unknown tool")

// Catalog is what can be called at one moment. It is never changed.
type Catalog struct {
	// Tools is sorted by name. The tools must not be modified.
	Tools []*mcp.Tool
	// Resources, Templates and Prompts are those of all peers, sorted by URI
	// and by name. They must not be modified.
	Resources []*mcp.Resource
	Templates []*mcp.ResourceTemplate
	Prompts   []*mcp.Prompt
	// Talks names the tools whose peer may speak to clients while it answers.
	Talks map[string]bool
	// Changed is closed when a newer Catalog replaces this one.
	Changed <-chan struct{}

	changed   chan struct{}
	entries   map[string]*entry         // by the name of a tool
	resources map[string]Peer           // by URI
	templates map[string]Peer           // by URI template
	owned     urimatch.Index[*living]   // of the templates that the user's own peers serve
	matching  urimatch.Index[Peer]      // of those of installed packages
	realms    map[string]Peer           // whose all resources of an authority are (realmOf); nil if they are of several
	reader    Peer                      // the only one that can be read from; nil if there is none, or more
	prompts   map[string]Peer           // by name
	held      map[string]withheldPrompt // by name
	servers   map[string]server         // that have tools of their own, by the names of their manifests
	named     func() map[Peer]string    // those names, by their peers
	awaited   []server                  // those that have not said what they offer, also where their time to do so is over
	governed  governed
	admit     func(context.Context, peer.Request, func() *rules.Target) error // see Options.AdmitRequest
	log       *slog.Logger
}

// server is a peer in a catalog, with what it offered when the catalog was made. The zero value is none.
type server struct {
	Peer
	of     *living
	offers *peer.Offers
	late   bool // see living.isLate
}

// entry is one tool that can be called. It is never changed.
type entry struct {
	of       *living
	target   atomic.Pointer[governedEntry] // see Catalog.targetOf
	provider Provider
	listed   *mcp.Tool
	input    *schema.Schema
	timeout  time.Duration // of an attempt; 0: no limit but the caller's
	tooLate  error         // why an attempt ends with it
	withheld error         // why it is not served, and not in Catalog.Tools; nil if it is
	attempt  Attempt       // answers a call, as Wrap has it
}

// Supervisor routes calls to providers. Its methods may be called from any
// goroutine, but Serve only once.
type Supervisor struct {
	*inflight.Calls

	opts    Options
	tree    *suture.Supervisor
	catalog atomic.Pointer[Catalog]
	asked   atomic.Uint64 // how many times somebody wanted a new catalog
	ruled   atomic.Bool   // see governed.ruled

	compiling *turns.Queue // see living.prepare
	updated   chan string
	applying  sync.Mutex // guards what follows until gates; taken before nothing else
	published uint64     // the asked that the last catalog is for
	rests     time.Time  // until then, no catalog is made because a peer has changed
	others    others     // see KnowOthers
	stale     bool       // they have changed since the last catalog
	living    map[string]*living
	warned    warned                   // of the last catalog
	claims    map[claim.Claim][]string // who served first what several offer, by the names of manifests
	kept      *claim.File              // of claims; nil if they are not kept
	disputed  []manifest.Problem       // what is not served, since it belongs to another
	gates     map[string]gate          // by the name of a manifest whose provider lives, or lived
}

// New returns a Supervisor that knows no tool yet.
func New(opts Options) *Supervisor {
	s := &Supervisor{
		Calls:   inflight.New(),
		opts:    opts,
		tree:    suture.New("back", services.Spec(opts.Log)),
		living:  map[string]*living{},
		gates:   map[string]gate{},
		updated: make(chan string),

		compiling: turns.NewQueue(turns.Workers(), 0),
	}
	if opts.ClaimFile != "" {
		var err error
		if s.claims, err = claim.Read(opts.ClaimFile); err != nil && opts.Log != nil {
			opts.Log.Error("cannot read which capsule was first to offer something: names that several have may be others' now", "path", opts.ClaimFile, "err", err)
		}
		s.kept = claim.NewFile(opts.ClaimFile, s.claimed, opts.Log)
		s.tree.Add(s.kept)
	}
	s.publish()
	return s
}

// String names the supervisor in logs.
func (s *Supervisor) String() string { return "back" }

// Serve keeps the living providers running until ctx ends, and returns when
// all of them have.
func (s *Supervisor) Serve(ctx context.Context) error { return s.tree.Serve(ctx) }

// Catalog returns what can be called now.
func (s *Supervisor) Catalog() *Catalog { return s.catalog.Load() }

// Call answers one call: it finds the tool, admits the call, checks its
// arguments, and makes the attempts that Wrap makes of it, each within the
// tool's timeout. An error has a fault code, that of an unknown tool matches
// ErrUnknownTool, or it is the *jsonrpc.Error with which a tool refuses.
func (s *Supervisor) Call(ctx context.Context, call peer.Call) (got peer.Answer, err error) {
	c, e := s.find(ctx, &call)
	ctx = callid.Ensure(ctx) // one id for all attempts, also where nobody gave one
	if s.opts.Audit == nil {
		return s.answer(ctx, c, e, call)
	}
	if call.Began.IsZero() {
		call.Began = time.Now()
	}
	decided, ended, err := s.opts.Audit(call) // a pointer to it would have it on the heap, also without Audit
	if err != nil {
		return peer.Answer{}, err
	}
	call.Decided = decided
	target := ""
	if e != nil {
		target = e.of.tool.Name
	}
	err = errPanicked
	defer func() { got.Ended = ended(ctx, target, got, err) }()
	got, err = s.answer(ctx, c, e, call)
	return got, err
}

// Ended is called when a call has ended, for Options.Audit. target is the name of the tool's manifest; "" if there is no such tool.
type Ended = func(ctx context.Context, target string, got peer.Answer, err error) func(outcome string, took time.Duration)

// errPanicked is how a call has ended for Options.Audit if it has not returned.
var errPanicked = fault.New(fault.ExecutionFailed, "it failed inside Orla")

// answer answers a call of a tool; nil for one that is not there.
func (s *Supervisor) answer(ctx context.Context, c *Catalog, e *entry, call peer.Call) (got peer.Answer, err error) {
	if e == nil {
		return peer.Answer{}, fault.Wrap(fault.UnsupportedTool, ErrUnknownTool, "there is no tool %q", call.Tool)
	}
	ctx, one, err := s.Enter(ctx, call.Owner)
	if err != nil {
		return peer.Answer{}, err
	}
	defer one.Leave()
	if c, e = s.settled(ctx, c, e); e == nil {
		return peer.Answer{}, fault.Wrap(fault.UnsupportedTool, ErrUnknownTool, "there is no tool %q any more", call.Tool)
	}
	var admitted Admitted
	if s.opts.Admit != nil {
		if admitted, err = s.opts.Admit(ctx, call, c.targetOf(e)); err != nil {
			return peer.Answer{}, err
		}
	}
	if admitted.Done != nil {
		defer func() { admitted.Done(got.Attempts > 1 || !fault.IsUnsent(err)) }()
	}
	if e.withheld != nil {
		return peer.Answer{}, fault.Unsent(e.withheld)
	}
	if err := e.check(ctx, call.Args); err != nil {
		return peer.Answer{}, err
	}
	if admitted.Approve != nil {
		waited := call // by itself: call would be on the heap in every call
		if err := s.approved(ctx, one, &waited, admitted.Approve); err != nil {
			return peer.Answer{}, err
		}
		if ctx, e, err = s.now(ctx, e, &waited, admitted.Judge); err != nil {
			return peer.Answer{}, fault.Unsent(err)
		}
		call = waited
	} else {
		ctx = rejudge.With(ctx, admitted.Judge, c.targetOf(e))
	}
	call.Attempt = 1
	return e.attempt(ctx, call)
}

// heavyArgs is the size of arguments from which their check has a deadline of its own: it
// takes long enough to be one of the call's.
const heavyArgs = 64 << 10

// check checks arguments against the tool's schema, within the tool's timeout (SPEC S1).
func (e *entry) check(ctx context.Context, args json.RawMessage) error {
	if len(args) > heavyArgs {
		var cancel context.CancelFunc
		ctx, cancel = within(ctx, e.timeout, e.tooLate)
		defer cancel()
	}
	return e.input.Validate(ctx, args)
}

// within bounds ctx by a tool's timeout; 0 is none.
func within(ctx context.Context, timeout time.Duration, cause error) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, timeout, cause)
}

// tooLate is why a request ends with its timeout.
func tooLate(what string, timeout time.Duration) error {
	return fault.New(fault.Timeout, "%s gave no answer within its timeout of %s", what, timeout)
}
