// Package protocol is MCP between Orla and a capsule: the version, the params of requests, and
// the reading of lists. Package capsule decides which request is made when.
package protocol

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

const (
	// statelessVersion is the version of the protocol without sessions. Each request says
	// what its client has declared, and a request that needs input is answered with what it
	// needs (docs/decisions/0030).
	statelessVersion = "2026-07-28"
	// newestWithHandshake is the newest version with a handshake.
	newestWithHandshake = "2025-11-25"
)

const (
	// AskPatience bounds a request to a capsule that may not speak MCP (SPEC D7).
	AskPatience = time.Second
	// discoverPatience bounds a server/discover to an MCP server, unless half of its
	// startup_timeout is shorter.
	discoverPatience = 5 * time.Second
)

// Orla is Orla's side of the protocol with all processes of one capsule. Its methods may be
// called from any goroutine.
type Orla struct {
	tool     manifest.Tool
	version  string // Orla's own
	identity []byte // see identity
	log      *slog.Logger
	probing  probing // whether a new process is asked which versions it speaks
}

// New returns the Orla of a capsule. version is Orla's version.
func New(tool manifest.Tool, version string, log *slog.Logger) *Orla {
	return &Orla{tool: tool, version: version, identity: identity(version), log: log}
}

// Peer is a process, or a server, on one connection.
type Peer struct {
	*rpc.Conn

	orla      *Orla
	stateless atomic.Bool             // it speaks statelessVersion
	caps      *mcp.ServerCapabilities // see Capabilities

	listed    chan struct{} // closed by HasListed
	said      bool          // what it was given; written before that
	listOnce  sync.Once
	awaited   chan struct{} // closed by AwaitListed
	awaitOnce sync.Once

	acknowledged chan struct{} // holds a token when it has acknowledged a subscription; see Follow
}

// With returns the Peer on a connection. Negotiate has to be called next.
func (o *Orla) With(conn *rpc.Conn) *Peer {
	return &Peer{Conn: conn, orla: o, listed: make(chan struct{}), awaited: make(chan struct{}), acknowledged: make(chan struct{}, 1)}
}

// State is what is known of a Peer after Negotiate.
type State struct {
	Stateless    bool                    `json:"stateless,omitempty"`
	Capabilities *mcp.ServerCapabilities `json:"capabilities,omitempty"`
	Probing      int32                   `json:"probing,omitempty"`
}

// State returns what another Orla has to know of the peer to go on without Negotiate.
func (p *Peer) State() State {
	return State{Stateless: p.Stateless(), Capabilities: p.caps, Probing: p.orla.probing.state.Load()}
}

// GoOn is called in place of Negotiate, with the State of the same peer.
func (p *Peer) GoOn(s State) {
	p.caps = s.Capabilities
	p.stateless.Store(s.Stateless)
	p.orla.probing.state.Store(s.Probing)
}

// HasListed ends AwaitListed: the peer has said what it offers, or, if said is false, will not. The first one counts.
func (p *Peer) HasListed(said bool) {
	p.listOnce.Do(func() {
		p.said = said
		close(p.listed)
	})
}

// AwaitListed waits until HasListed, and returns what that was given; false if ctx ends before.
func (p *Peer) AwaitListed(ctx context.Context) (said bool) {
	p.awaitOnce.Do(func() { close(p.awaited) })
	select {
	case <-p.listed:
		return p.said
	case <-ctx.Done():
		return false
	}
}

// Pause waits for a time, but ends when somebody has begun to wait for HasListed. It reports false if ctx ends before.
func (p *Peer) Pause(ctx context.Context, wait time.Duration) bool {
	select {
	case <-time.After(wait):
	case <-p.awaited:
	case <-ctx.Done():
		return false
	}
	return true
}

// Stateless reports whether the peer speaks 2026-07-28.
func (p *Peer) Stateless() bool { return p.stateless.Load() }

// Capabilities returns the capabilities that the peer has declared; nil if it has not. It may
// be called after Negotiate.
func (p *Peer) Capabilities() *mcp.ServerCapabilities { return p.caps }

// Negotiate finds out whether the peer speaks statelessVersion, and makes the MCP handshake if
// it does not. The SDK's client makes the handshake over the connection that calls use too,
// and is not used after that: calls are passed on without decoding them.
func (p *Peer) Negotiate(ctx context.Context) error {
	protocol := p.orla.tool.Runtime.Protocol
	switch {
	case protocol != manifest.ProtocolInitialize && p.discover(ctx):
		return nil
	case protocol == manifest.ProtocolStateless:
		return errors.New("it does not say that it speaks MCP " + statelessVersion + ", the only one that its protocol key allows")
	}
	err := p.initialize(ctx)
	if err == nil {
		p.orla.probing.initialized()
	} else if _, refused := errors.AsType[*noHandshake](err); refused {
		// A server that is slow to begin may have heard both, and keep to what it heard first: now it answers that.
		if r := p.orla.tool.Runtime; p.orla.probing.refused() && ctx.Err() == nil && r.Handshake == manifest.HandshakeMCP && protocol != manifest.ProtocolInitialize && p.discover(ctx) {
			return nil
		}
	}
	return err
}

// initialize makes the handshake of the versions before statelessVersion.
func (p *Peer) initialize(ctx context.Context) error {
	var refusal error // what the peer has answered, which the SDK's client does not see if ctx ends first
	t := &tap{
		call: func(req rpc.Request) (json.RawMessage, error) {
			result, err := p.Call(ctx, req)
			if IsRefusal(err) {
				refusal = err
			}
			return result, cmp.Or(err, TooMuchSaid("initialize", result))
		},
		tell: func(method string, params json.RawMessage) error { return p.Notify(ctx, method, params) },
		in:   make(chan jsonrpc.Message),
		done: make(chan struct{}),
		log:  p.orla.log,
	}
	defer t.senders.Wait()
	defer func() { _ = t.Close() }() // it has no error
	client := mcp.NewClient(&mcp.Implementation{Name: "orla", Title: "Orla", Version: p.orla.version}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			Sampling:    &mcp.SamplingCapabilities{}, //nolint:staticcheck // deprecated, and in use
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
			RootsV2:     &mcp.RootCapabilities{}, //nolint:staticcheck // deprecated, and in use
		},
	})
	session, err := client.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: newestWithHandshake})
	if err != nil {
		_ = t.Close() // it has no error
		t.senders.Wait()
		if !IsRefusal(err) {
			err = cmp.Or(refusal, err)
		}
		return fmt.Errorf("initialize: %w", err)
	}
	if res := session.InitializeResult(); res != nil && res.Capabilities != nil {
		p.keep(res.Capabilities)
	}
	_ = session.Close() // it closes the tap, and no more
	return nil
}

// maxSaid bounds the JSON values in a message of the handshake: decoded, a value takes many
// times its bytes.
const maxSaid = 10_000

// TooMuchSaid returns an error if a message of the handshake has more than maxSaid values.
func TooMuchSaid(in string, raw json.RawMessage) error {
	if rawjson.Values(raw) > maxSaid {
		return fmt.Errorf("its %s has over %d values", in, maxSaid)
	}
	return nil
}

// keep keeps the capabilities that Orla uses.
func (p *Peer) keep(caps *mcp.ServerCapabilities) {
	p.caps = &mcp.ServerCapabilities{}
	if caps != nil {
		*p.caps = *caps
		p.caps.Experimental, p.caps.Extensions = nil, nil
	}
}

// noHandshake wraps the error of a request of the handshake. The SDK's client passes it on
// unchanged.
type noHandshake struct{ error }

func (e *noHandshake) Unwrap() error { return e.error }

// IsRefusal reports whether an error of Negotiate is what the peer has answered.
func IsRefusal(err error) bool {
	_, is := errors.AsType[*jsonrpc.Error](err)
	return is
}

// tap is a transport for the SDK's client. It uses the connection of a Peer during the
// handshake.
type tap struct {
	call    func(rpc.Request) (json.RawMessage, error)
	tell    func(method string, params json.RawMessage) error
	in      chan jsonrpc.Message
	once    sync.Once
	done    chan struct{}
	senders sync.WaitGroup
	log     *slog.Logger
}

func (t *tap) Connect(context.Context) (mcp.Connection, error) { return t, nil }

func (t *tap) SessionID() string { return "" }

func (t *tap) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-t.in:
		return msg, nil
	case <-t.done:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (t *tap) Write(_ context.Context, msg jsonrpc.Message) error {
	req, ok := msg.(*jsonrpc.Request)
	switch {
	case !ok: // a response: the client gets no requests
		return nil
	case !req.IsCall():
		return t.tell(req.Method, req.Params)
	}
	t.senders.Go(func() {
		defer recovered.To(t.log, "make the handshake", func(any) { _ = t.Close() })
		result, err := t.call(rpc.Request{Method: req.Method, Params: Just(req.Params), Own: true})
		if err != nil {
			err = &noHandshake{err}
		}
		select {
		case t.in <- &jsonrpc.Response{ID: req.ID, Result: result, Error: err}:
		case <-t.done:
		}
	})
	return nil
}

func (t *tap) Close() error {
	t.once.Do(func() { close(t.done) })
	return nil
}

// probing says whether a new process is sent server/discover. Some servers do not handle an
// unknown request well: one that did not answer it is not asked again, and one that ended is
// not asked at its next start.
type probing struct{ state atomic.Int32 }

const (
	probes   int32 = iota // the next process is asked
	skipsOne              // the next one is not; if it starts, none is
	skipsAll
)

// discover asks which versions of the protocol the process speaks, and reports whether
// statelessVersion is one of them. If there is no answer, it is not.
func (p *Peer) discover(ctx context.Context) bool {
	r := p.orla.tool.Runtime
	only := r.Protocol == manifest.ProtocolStateless
	if !p.orla.probing.state.CompareAndSwap(probes, skipsOne) && !only {
		return false
	}
	patience := min(discoverPatience, r.StartupTimeout/2)
	switch {
	case only: // there is nothing else to try: a slow start is not a reason to end it
		patience = r.StartupTimeout
	case r.Handshake == manifest.HandshakeHello:
		patience = AskPatience
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result, err := p.Call(asking, rpc.Request{Method: "server/discover", Params: p.orla.stateless(nil), Own: true, Quiet: true})
	if err == nil {
		err = TooMuchSaid("server/discover", result)
	}
	_, refused := errors.AsType[*jsonrpc.Error](err)
	switch {
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		p.orla.log.Debug("a server does not answer server/discover; it is not asked again", "tool", p.orla.tool.Name)
		p.orla.probing.state.Store(skipsAll)
	case err == nil, refused, p.orla.tool.Runtime.Remote != nil: // a remote server that is gone was not hurt by the question
		p.orla.probing.state.Store(probes)
	}
	var said struct {
		Versions     []string                `json:"supportedVersions"`
		Capabilities *mcp.ServerCapabilities `json:"capabilities"`
	}
	if err != nil || json.Unmarshal(result, &said) != nil || !slices.Contains(said.Versions, statelessVersion) {
		return false
	}
	p.keep(said.Capabilities)
	p.stateless.Store(true)
	p.orla.log.Debug("a server speaks "+statelessVersion, "tool", p.orla.tool.Name)
	return true
}

// initialized notes that the process has made the handshake of the older versions.
func (p *probing) initialized() { p.state.CompareAndSwap(skipsOne, skipsAll) }

// refused notes that a process has refused that handshake: the next one is asked again. It reports whether a process
// has left the question without an answer.
func (p *probing) refused() (silent bool) { return p.state.Swap(probes) == skipsAll }
