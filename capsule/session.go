package capsule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/linerpc"
	"github.com/orla-project/orla/internal/rawjson"
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
)

// negotiate makes the MCP handshake by the SDK's client, over the connection
// that everything else uses as well. The client is let go of then: calls are
// passed on as the bytes that they are, which its types would not allow.
func (in *incarnation) negotiate(ctx context.Context) error {
	t := &tap{conn: in.conn, ctx: ctx, in: make(chan jsonrpc.Message), done: make(chan struct{})}
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
		in.caps = res.Capabilities
	}
	_ = session.Close() // it closes the tap, and no more
	return nil
}

// tap is a transport for the SDK's client that shares a connection.
type tap struct {
	conn    *linerpc.Conn
	ctx     context.Context //nolint:containedctx // that of the handshake, which is all that a tap lives for
	in      chan jsonrpc.Message
	once    sync.Once
	done    chan struct{}
	senders sync.WaitGroup
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
		t.conn.Notify(req.Method, req.Params)
		return nil
	}
	t.senders.Go(func() { //nolint:contextcheck // a request outlives the writing of it, and ends with the handshake
		ctx, cancel := context.WithCancel(t.ctx)
		defer cancel()
		result, err := t.conn.Call(ctx, linerpc.Request{Method: req.Method, Params: just(req.Params)})
		if wire, refused := errors.AsType[*jsonrpc.Error](err); err != nil && !refused {
			err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: err.Error()}
		} else if refused {
			err = wire
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
	in.c.asked.repeat(ctx, in)
	first := true
	for {
		if offered, ok := in.learn(ctx, first); ok {
			in.c.offers.set(offered)
		}
		if in.tellsNothing() {
			return
		}
		first = false
		select {
		case <-in.c.relist:
		case <-ctx.Done():
			return
		}
	}
}

// learn asks what the capsule offers (SPEC D7). It reports false when ctx ended.
func (in *incarnation) learn(ctx context.Context, first bool) (offered, bool) {
	switch {
	case in.tellsNothing():
		return offered{}, ctx.Err() == nil
	case in.c.tool.Runtime.Handshake == manifest.HandshakeHello && first:
		asking, cancel := context.WithTimeout(ctx, askPatience)
		err := in.negotiate(asking)
		cancel()
		if err != nil {
			in.c.log.Debug("a capsule does not know initialize; it is asked for its lists all the same", "tool", in.c.tool.Name, "err", err)
		}
	}
	o := in.ask(ctx)
	return o, ctx.Err() == nil
}

// tellsNothing reports whether there is nothing to ask the capsule for: it is
// what its manifest says, or one tool.
func (in *incarnation) tellsNothing() bool {
	r := in.c.tool.Runtime
	return r.Declared || r.Handshake == manifest.HandshakeHello && !in.hello.offersLists()
}

// ask asks for every list that the capsule says it has.
func (in *incarnation) ask(ctx context.Context) offered {
	var o offered
	caps, patience := in.caps, listPatience
	if caps == nil { // all that is known is its hello
		caps, patience = in.hello.capabilities(), askPatience
	}
	if caps.Tools != nil {
		o.Tools = in.list(ctx, "tools/list", "tools", patience)
	}
	if caps.Resources != nil {
		o.Reads, o.Subscribes = true, caps.Resources.Subscribe
		o.Resources = in.list(ctx, "resources/list", "resources", patience)
		o.Templates = in.list(ctx, "resources/templates/list", "resourceTemplates", patience)
	}
	if caps.Prompts != nil {
		o.Prompts = in.list(ctx, "prompts/list", "prompts", patience)
	}
	o.Completes, o.Logs = caps.Completions != nil, caps.Logging != nil //nolint:staticcheck // as above
	return o
}

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

// list fetches all pages of a list. What a capsule does not answer, or answers
// with nonsense, is an empty list, or ends at the page before.
func (in *incarnation) list(ctx context.Context, method, key string, patience time.Duration) []json.RawMessage {
	var items []json.RawMessage
	cursor := ""
	for range maxPages {
		page, next, err := in.page(ctx, method, key, cursor, patience)
		if err != nil {
			if ctx.Err() == nil {
				in.c.log.Info("a capsule does not list what it offers", "tool", in.c.tool.Name, "method", method, "err", err)
			}
			return items
		}
		items = append(items, page...)
		if next == "" || next == cursor || len(items) > maxItems {
			break
		}
		cursor = next
	}
	if len(items) > maxItems {
		in.c.log.Warn("a capsule lists more than Orla serves", "tool", in.c.tool.Name, "method", method, "most", maxItems)
		items = items[:maxItems]
	}
	return items
}

func (in *incarnation) page(ctx context.Context, method, key, cursor string, patience time.Duration) (items []json.RawMessage, next string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer within %s", patience))
	defer cancel()
	params := json.RawMessage("{}")
	if cursor != "" {
		params = quotedMember("cursor", cursor)
	}
	result, err := in.conn.Call(ctx, linerpc.Request{Method: method, Params: just(params)})
	if err != nil {
		return nil, "", err
	}
	if !rawjson.IsObject(result) {
		return nil, "", errors.New("the answer is no object")
	}
	found := false
	rawjson.Members(result, func(name string, value json.RawMessage) bool {
		switch name {
		case key:
			found = rawjson.Elements(value, func(item json.RawMessage) bool {
				items = append(items, item)
				return true
			})
		case "nextCursor":
			_ = json.Unmarshal(value, &next) // what is no string is the end
		}
		return true
	})
	if !found {
		return nil, "", fmt.Errorf("the answer has no list of %s", key)
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

func quotedMember(name, value string) json.RawMessage {
	raw, err := json.Marshal(map[string]string{name: value})
	if err != nil { // they are strings
		panic(err)
	}
	return raw
}
