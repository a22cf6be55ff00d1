package capsule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/recovered"
	"github.com/orla-project/orla/internal/rpc"
	"github.com/orla-project/orla/manifest"
)

const (
	// peerVersion is the protocol that Orla speaks with capsules: the newest
	// with a handshake, which is what a process on two pipes has.
	peerVersion = "2025-11-25"
	// askPatience is how long a capsule that need not know MCP may take to say
	// so (SPEC D7).
	askPatience = time.Second
	// listPatience is the same for a page of a list of one that does.
	listPatience = 10 * time.Second
	// maxPages and maxItems bound what a capsule may list.
	maxPages, maxItems = 100, 10_000
	maxListed          = 8 << 20 // bytes
	// maxListedValues bounds the values of a list: they stay in memory, decoded, in
	// which small ones take many times their bytes.
	maxListedValues = 400_000
	// maxCursor bounds what a capsule may call a page, in bytes.
	maxCursor = 64 << 10
	// relistPause is the time between two times that a capsule is asked for its
	// lists, however often it says that they have changed.
	relistPause = time.Second
	// relistEach is added to that for each thing that an McpServer has listed:
	// one with thousands must not keep Orla busy with what they are now.
	relistEach = 2 * time.Millisecond
	// unheardPause is the time before a server that is far away is asked again
	// which could not be heard.
	unheardPause = 10 * time.Second
)

// negotiate makes the MCP handshake by the SDK's client, over the connection
// that everything else uses as well. The client is let go of then: calls are
// passed on as the bytes that they are, which its types would not allow.
func (in *incarnation) negotiate(ctx context.Context) error {
	protocol := in.c.tool.Runtime.Protocol
	switch {
	case protocol != manifest.ProtocolInitialize && in.discover(ctx):
		return nil
	case protocol == manifest.ProtocolStateless:
		return errors.New("it does not say that it speaks MCP " + statelessVersion + ", the only one that its protocol key allows")
	}
	err := in.initialize(ctx)
	if err == nil {
		in.c.probing.initialized()
	} else if _, refused := errors.AsType[*noHandshake](err); refused {
		in.c.probing.refused()
	}
	return err
}

// initialize makes the handshake of the versions before statelessVersion.
func (in *incarnation) initialize(ctx context.Context) error {
	t := &tap{
		call: func(req rpc.Request) (json.RawMessage, error) {
			result, err := in.conn.Call(ctx, req)
			return result, cmp.Or(err, tooMuchSaid("initialize", result))
		},
		tell: func(method string, params json.RawMessage) error { return in.conn.Notify(ctx, method, params) },
		in:   make(chan jsonrpc.Message),
		done: make(chan struct{}),
		log:  in.c.log,
	}
	defer t.senders.Wait()
	defer func() { _ = t.Close() }() // it has no error
	client := mcp.NewClient(&mcp.Implementation{Name: "orla", Title: "Orla", Version: in.c.opts.Version}, &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			Sampling:    &mcp.SamplingCapabilities{}, //nolint:staticcheck // on its way out, and in use
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
			RootsV2:     &mcp.RootCapabilities{}, //nolint:staticcheck // as above
		},
	})
	session, err := client.Connect(ctx, t, &mcp.ClientSessionOptions{ProtocolVersion: peerVersion})
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if res := session.InitializeResult(); res != nil && res.Capabilities != nil {
		in.keep(res.Capabilities)
	}
	_ = session.Close() // it closes the tap, and no more
	return nil
}

// maxSaid bounds the values of what a capsule says of itself in its handshake. Decoded
// they take many times their bytes.
const maxSaid = 10_000

// tooMuchSaid is why what a capsule says of itself is not read; nil if it is.
func tooMuchSaid(in string, raw json.RawMessage) error {
	if rawjson.Values(raw) > maxSaid {
		return fmt.Errorf("its %s has over %d values", in, maxSaid)
	}
	return nil
}

// keep keeps what of a server's capabilities Orla asks about.
func (in *incarnation) keep(caps *mcp.ServerCapabilities) {
	in.caps = &mcp.ServerCapabilities{}
	if caps != nil {
		*in.caps = *caps
		in.caps.Experimental, in.caps.Extensions = nil, nil
	}
}

// noHandshake is why there was no answer to initialize, or what the answer was in place
// of a result. The SDK's client passes it on as it is.
type noHandshake struct{ error }

func (e *noHandshake) Unwrap() error { return e.error }

// tap is a transport for the SDK's client that shares a connection, for as long
// as the handshake lasts.
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
	case !ok: // the client is asked nothing
		return nil
	case !req.IsCall():
		return t.tell(req.Method, req.Params)
	}
	t.senders.Go(func() {
		defer recovered.To(t.log, "make the handshake", func(any) { _ = t.Close() })
		result, err := t.call(rpc.Request{Method: req.Method, Params: just(req.Params), Own: true})
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

// followLists asks what the capsule offers, now and whenever it says that this
// has changed.
func (in *incarnation) followLists(ctx context.Context) {
	first := true
	for {
		said, ok := in.learn(ctx, first)
		if ok {
			in.c.offers.Set(said)
		}
		if in.tellsNothing() {
			return
		}
		switch {
		case first && in.conn.stateless.Load():
			in.helpers.Go(func() {
				defer in.contain()
				in.listen(ctx)
			})
		case first:
			in.c.asked.repeat(ctx, in)
		}
		first = false
		if in.silent && !in.insisted {
			in.insisted = true // it is one tool for now; on a busy machine the answer may come yet
			continue
		}
		if !wait(ctx, in.betweenLists()) || !in.awaitRelist(ctx) {
			return
		}
	}
}

// betweenLists is the time between two times that the capsule is asked for its lists.
func (in *incarnation) betweenLists() time.Duration {
	if !in.c.tool.Runtime.Generated {
		return relistPause
	}
	said := in.c.offers.Last()
	listed := len(said.Tools) + len(said.Resources) + len(said.Templates) + len(said.Prompts)
	return relistPause + time.Duration(listed)*relistEach
}

// awaitRelist waits until the capsule is to be asked again: when it says that its
// lists have changed, and one that is far away also after a while when it could
// not be heard. It reports false when ctx ends before.
func (in *incarnation) awaitRelist(ctx context.Context) bool {
	var again <-chan time.Time
	if in.unheard && in.c.tool.Runtime.Remote != nil {
		timer := time.NewTimer(unheardPause)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-in.relist:
	case <-again:
	case <-ctx.Done():
		return false
	}
	return true
}

// wait waits, and reports false when ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// learn asks what the capsule offers (SPEC D7). It reports false when the process
// is over: what it did not say then is not what it does not have.
func (in *incarnation) learn(ctx context.Context, first bool) (records.Offered, bool) {
	switch {
	case in.tellsNothing():
		return records.Offered{}, ctx.Err() == nil
	case in.c.tool.Runtime.Handshake == manifest.HandshakeHello && first:
		asking, cancel := context.WithTimeout(ctx, 2*askPatience) // for each of the two questions
		err := in.negotiate(asking)
		cancel()
		if err != nil {
			in.c.log.Debug("a capsule does not know initialize; it is asked for its lists all the same", "tool", in.c.tool.Name, "err", err)
		}
	}
	return in.ask(ctx)
}

// tellsNothing reports whether there is nothing to ask the capsule for: it is
// what its manifest says, or one tool.
func (in *incarnation) tellsNothing() bool {
	r := in.c.tool.Runtime
	return r.Declared || r.Handshake == manifest.HandshakeHello && !in.hello.offersLists()
}

// ask asks for every list that the capsule says it has. Of an MCP server that
// does not answer in time the last list of the kind stands.
func (in *incarnation) ask(ctx context.Context) (o records.Offered, ok bool) {
	before := in.c.offers.Last()
	ok, in.unheard = true, false
	caps, patience := in.caps, listPatience
	if caps == nil { // all that is known is its hello
		caps = in.hello.capabilities()
		if !in.insisted {
			patience = askPatience
		}
	}
	list := func(method, key string, before []json.RawMessage) []json.RawMessage {
		items, err := in.list(ctx, method, key, patience)
		switch {
		case err == nil:
			return items
		case errors.Is(err, errListLost):
			ok = false
		case refused(err):
		case in.c.tool.Runtime.Handshake == manifest.HandshakeMCP:
			items, in.unheard = before, true
		default:
			in.silent = true
			if !in.insisted { // it is asked again, with more patience
				items = before
			}
		}
		in.c.log.Info("a capsule does not list what it offers", "tool", in.c.tool.Name, "method", method, "err", brief(err))
		return items
	}
	if caps.Tools != nil {
		o.Tools = list("tools/list", "tools", before.Tools)
	}
	if caps.Resources != nil {
		o.Reads, o.Subscribes = true, caps.Resources.Subscribe
		o.Resources = list("resources/list", "resources", before.Resources)
		o.Templates = list("resources/templates/list", "resourceTemplates", before.Templates)
	}
	if caps.Prompts != nil {
		o.Prompts = list("prompts/list", "prompts", before.Prompts)
	}
	o.Completes, o.Logs = caps.Completions != nil, caps.Logging != nil //nolint:staticcheck // as above
	return o, ok
}

// errListLost is in the chain of the error of a list that a process was asked
// for that is over.
var errListLost = errors.New("the process is over")

// refused reports whether a capsule said that it has no such list.
func refused(err error) bool {
	_, ok := errors.AsType[*jsonrpc.Error](err)
	return ok
}

// missed reports whether a request met the end of a process, and no server.
func missed(err error) bool { return errors.Is(err, rpc.ErrNotSent) }

// capabilities are what a hello says, in the protocol's words.
func (h hello) capabilities() *mcp.ServerCapabilities {
	caps := &mcp.ServerCapabilities{}
	for _, name := range h.Capabilities {
		switch name {
		case "tools":
			caps.Tools = &mcp.ToolCapabilities{}
		case "resources":
			caps.Resources = &mcp.ResourceCapabilities{}
		case "prompts":
			caps.Prompts = &mcp.PromptCapabilities{}
		}
	}
	return caps
}

// list fetches all pages of a list. Beside an error it returns the pages before.
func (in *incarnation) list(ctx context.Context, method, key string, patience time.Duration) (items []json.RawMessage, err error) {
	cursor, size, values := "", 0, 0
	for range maxPages {
		page, next, err := in.page(ctx, method, key, cursor, patience)
		switch {
		case ctx.Err() != nil, missed(err), err != nil && in.conn.Err() != nil:
			return items, fmt.Errorf("%w: %w", errListLost, cmp.Or(err, ctx.Err()))
		case err != nil:
			return items, err
		}
		for _, item := range page {
			size += len(item)
			values += rawjson.Values(item)
			if len(items) == maxItems || size > maxListed || values > maxListedValues {
				in.c.log.Warn("a capsule lists more than Orla serves", "tool", in.c.tool.Name, "method", method,
					"most", maxItems, "most_bytes", maxListed, "most_values", maxListedValues)
				return items, nil
			}
			items = append(items, item)
		}
		if next == "" || next == cursor {
			break
		}
		cursor = next
	}
	return items, nil
}

func (in *incarnation) page(ctx context.Context, method, key, cursor string, patience time.Duration) (items []json.RawMessage, next string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	params := json.RawMessage("{}")
	if cursor != "" {
		params = rawjson.Pair("cursor", cursor)
	}
	result, err := in.conn.Call(ctx, rpc.Request{Method: method, Params: in.own(params), Own: true})
	if err != nil {
		return nil, "", err
	}
	if !rawjson.IsObject(result) {
		return nil, "", errors.New("the answer is no object")
	}
	found, long := false, false
	rawjson.Members(result, func(name []byte, value json.RawMessage) bool {
		switch string(name) {
		case key:
			found = rawjson.Elements(value, func(item json.RawMessage) bool {
				items = append(items, item)
				return true
			})
		case "nextCursor":
			if long = len(value) > maxCursor; !long {
				_ = json.Unmarshal(value, &next) // what is not a string is the end
			}
		}
		return true
	})
	if !found {
		return nil, "", fmt.Errorf("the answer has no list of %s", key)
	}
	if long {
		return nil, "", fmt.Errorf("the answer has a cursor of over %d bytes", maxCursor)
	}
	return items, next, nil
}

// just gives params that do not depend on the request.
func just(params json.RawMessage) func(int64) [][]byte {
	if params == nil {
		params = json.RawMessage("{}")
	}
	return func(int64) [][]byte { return [][]byte{rawjson.Compact(params)} }
}
