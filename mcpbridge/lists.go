package mcpbridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/listing"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

// listed is all that clients can be told of a catalog. It is never changed, but replaced.
type listed struct {
	of        *supervisor.Catalog
	tools     listing.Items[*mcp.Tool]
	resources listing.Items[*mcp.Resource]
	templates listing.Items[*mcp.ResourceTemplate]
	prompts   listing.Items[*mcp.Prompt]
	views     views
}

// lists are what the bridge lists now.
type lists struct {
	making sync.Mutex // locked by who lists what the catalog has now
	made   atomic.Pointer[listed]
}

// current returns what is listed of the catalog that there is now.
func (b *Bridge) current() *listed {
	if l := b.lists.made.Load(); l.of == b.catalog.Catalog() {
		return l
	}
	return b.follow()
}

// follow lists what the catalog has now, and has clients be told of what has changed.
func (b *Bridge) follow() *listed {
	b.lists.making.Lock()
	defer b.lists.making.Unlock()
	before, c := b.lists.made.Load(), b.catalog.Catalog()
	if before.of == c {
		return before
	}
	next := &listed{of: c}
	var changed [client.Lists]bool
	var more bool
	next.tools, changed[client.ListTools] = listing.List(before.tools, c.Tools, func(t *mcp.Tool) string { return t.Name }, checkTool, func(name string, err error) {
		b.log.Error("a tool cannot be listed", "tool", name, "err", err)
	})
	unlisted := func(what string, err error) {
		b.log.Error("cannot list what a peer offers", "what", what, "err", err)
	}
	next.resources, changed[client.ListResources] = listing.List(before.resources, c.Resources, func(r *mcp.Resource) string { return r.URI }, checkResource, unlisted)
	next.templates, more = listing.List(before.templates, c.Templates, func(t *mcp.ResourceTemplate) string { return t.URITemplate },
		func(*mcp.ResourceTemplate) (listing.Traits, error) { return listing.Traits{}, nil }, unlisted)
	changed[client.ListResources] = changed[client.ListResources] || more
	next.prompts, changed[client.ListPrompts] = listing.List(before.prompts, c.Prompts, func(p *mcp.Prompt) string { return p.Name },
		func(*mcp.Prompt) (listing.Traits, error) { return listing.Traits{}, nil }, unlisted)
	b.lists.made.Store(next)
	if before.of != nil {
		b.audience.listChanged(changed)
	}
	return next
}

// checkTool says why a tool cannot be listed, if so.
func checkTool(t *mcp.Tool) (listing.Traits, error) {
	schema, err := wire.SchemaJSON(t.InputSchema)
	if err != nil {
		return listing.Traits{}, fmt.Errorf("its input schema: %w", err)
	}
	if kind := rawjson.Get(schema, "type"); rawjson.String(kind) != "object" {
		return listing.Traits{}, fmt.Errorf("its input schema is not of type \"object\" (%s)", wire.Brief(string(schema)))
	}
	if _, err := wire.SchemaJSON(t.OutputSchema); err != nil {
		return listing.Traits{}, fmt.Errorf("its output schema: %w", err)
	}
	headers, err := wire.HeaderParamsIn(schema)
	return listing.Traits{Structured: t.OutputSchema != nil, Headers: headers}, err
}

func checkResource(r *mcp.Resource) (listing.Traits, error) {
	_, err := url.Parse(r.URI)
	return listing.Traits{}, err
}

// settle waits until the catalog is known to be whole, for what would else be missing in an
// answer (SPEC D7a), and lists it. An error refuses a request that would have to wait.
func (b *Bridge) settle(ctx context.Context, r *Request) (*listed, *jsonrpc.Error) {
	if !b.catalog.Catalog().Known() {
		wait, leave, err := b.catalog.Waiting(ctx, r.from.As)
		if err != nil {
			return nil, b.refused(ctx, r.Method, err)
		}
		defer leave()
		if b.catalog.Settle(wait); wait.Err() != nil {
			return nil, b.refused(ctx, r.Method, context.Cause(wait))
		}
	}
	return b.current(), nil
}

// pageOf finds a page of a list behind a key; see items.page.
type pageOf func(l *listed, after string) (page wire.Parts, next string, keeps int)

// page returns a page of a list when there is room for it among the answers. A request that
// waits for room keeps no page: the list may change in the meantime, and so may its length.
func (b *Bridge) page(ctx context.Context, r *Request, after string, of pageOf) (wire.Parts, string, *jsonrpc.Error) {
	counted := 0
	for {
		whole, refused := b.settle(ctx, r)
		if refused != nil {
			return nil, "", refused
		}
		page, next, keeps := of(b.visible(whole, &r.from), after)
		if keeps <= max(counted, turns.Little) {
			return page, next, nil
		}
		err := b.awaitRoom(ctx, errNoRoomToList, func(ctx context.Context, account *turns.Account) error {
			return account.Need(ctx, int64(keeps-counted))
		})
		if err != nil {
			return nil, "", b.refused(ctx, r.Method, err)
		}
		counted = keeps
	}
}

var errNoRoomToList = fault.New(fault.RateLimited, "other answers use all the memory for answers; read them and try again")

// list answers a request for a page of a list.
func list(name string, of pageOf) serve {
	return func(b *Bridge, ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
		after, ok := "", true
		if cursor := r.Params.Cursor; cursor != nil && string(cursor) != "null" {
			after, ok = cursorIn(cursor)
		}
		if !ok {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of a list of Orla's"}
		}
		all, next, refused := b.page(ctx, r, after, of)
		if refused != nil {
			return nil, refused
		}
		out := make(wire.Parts, 0, 8)
		if r.newest {
			out = append(out, []byte(`{"resultType":"complete","_meta":{"`+mcp.MetaKeyServerInfo+`":`), b.selfJSON, []byte("},"))
		} else {
			out = append(out, []byte("{"))
		}
		out = append(out, []byte(`"ttlMs":0,"cacheScope":"private",`))
		if next != "" {
			out = append(out, []byte(`"nextCursor":"`+base64.RawURLEncoding.EncodeToString([]byte(next))+`",`))
		}
		out = append(out, []byte(`"`+name+`":`))
		return append(append(out, all...), wire.Closing), nil
	}
}

// cursorIn returns the key that a cursor of a client's stands for.
func cursorIn(raw json.RawMessage) (after string, ok bool) {
	cursor, ok := wire.TextOf(raw)
	if !ok {
		return "", false
	}
	key, err := base64.RawURLEncoding.DecodeString(cursor)
	return string(key), err == nil
}
