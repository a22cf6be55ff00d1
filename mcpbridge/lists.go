package mcpbridge

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
	"github.com/orla-project/orla/supervisor"
)

// pageSize is how many items a page of a list has.
const pageSize = mcp.DefaultPageSize

// listed is all that clients can be told of a catalog. It is never changed, but replaced.
type listed struct {
	of        *supervisor.Catalog
	tools     items[*mcp.Tool]
	resources items[*mcp.Resource]
	templates items[*mcp.ResourceTemplate]
	prompts   items[*mcp.Prompt]
}

// items are what is listed of one kind.
type items[T any] struct {
	all   []item[T] // by their keys, in order
	pages []json.RawMessage
}

// item is one of them.
type item[T any] struct {
	key    string
	value  T
	json   json.RawMessage
	traits traits // of a tool
}

// traits is what has to be known of a tool to answer a call of it.
type traits struct {
	structured bool              // clients expect a structured answer
	headers    *wire.HeaderParam // arguments that stand in HTTP headers as well; nil for none
}

// find returns an item.
func (l items[T]) find(key string) (item[T], bool) {
	at, found := slices.BinarySearchFunc(l.all, key, func(i item[T], key string) int { return strings.Compare(i.key, key) })
	if !found {
		return item[T]{}, false
	}
	return l.all[at], true
}

// page returns the items behind a key, "" for the first ones, as a JSON array, and the key
// to go on with; "" at the end. A page ends where one from the beginning does, so that all
// clients are told the same bytes. keeps is how many bytes are kept for as long as it is.
func (l items[T]) page(after string) (page wire.Parts, next string, keeps int) {
	at := 0
	if after != "" {
		var found bool
		at, found = slices.BinarySearchFunc(l.all, after, func(i item[T], key string) int { return strings.Compare(i.key, key) })
		if found {
			at++
		}
	}
	begin := at - at%pageSize
	end := min(begin+pageSize, len(l.all))
	if end < len(l.all) {
		next = l.all[end-1].key
	}
	if at == end && at > 0 || begin/pageSize == len(l.pages) {
		return wire.Parts{[]byte("[]")}, next, 0
	}
	whole := l.pages[begin/pageSize]
	if at == begin {
		return wire.Parts{whole}, next, len(whole)
	}
	left := 0 // bytes of what is before
	for _, i := range l.all[begin:at] {
		left += len(i.json) + len(",")
	}
	rest := whole[1+left:]
	if len(rest) <= turns.Little { // which nobody counts
		return wire.Parts{[]byte("["), bytes.Clone(rest)}, next, len(rest)
	}
	return wire.Parts{whole[:1], rest}, next, len(whole)
}

// sameItem reports whether an item was listed before.
func sameItem[T any](a, b item[T]) bool {
	return a.key == b.key && len(a.json) == len(b.json) && len(a.json) > 0 && &a.json[0] == &b.json[0]
}

func joinItems[T any](all []item[T]) json.RawMessage {
	size := 2
	for _, i := range all {
		size += len(i.json) + 1
	}
	out := append(make([]byte, 0, size), '[')
	for n, i := range all {
		if n > 0 {
			out = append(out, ',')
		}
		out = append(out, i.json...)
	}
	return append(out, ']')
}

// listItems lists now, of which what equals a value of before stays as it was. It returns
// whether anything differs. What check refuses is left out, and refused is told of it.
func listItems[T any](before items[*T], now []*T, key func(*T) string, check func(*T) (traits, error), refused func(key string, err error)) (items[*T], bool) {
	next := items[*T]{all: make([]item[*T], 0, len(now))}
	differs := false
	for _, value := range now {
		k := key(value)
		if had, ok := before.find(k); ok && (had.value == value || reflect.DeepEqual(had.value, value)) {
			next.all = append(next.all, had)
			continue
		}
		made := item[*T]{key: k, value: value}
		err := contained(func() (err error) {
			if made.traits, err = check(value); err == nil {
				made.json, err = json.Marshal(value)
			}
			return err
		})
		if err != nil {
			refused(k, err)
			continue
		}
		next.all = append(next.all, made)
		differs = true
	}
	slices.SortFunc(next.all, func(a, b item[*T]) int { return strings.Compare(a.key, b.key) })
	if !differs && len(next.all) == len(before.all) {
		return before, false
	}
	for at := 0; at < len(next.all) || at == 0; at += pageSize {
		page, was := next.all[at:min(at+pageSize, len(next.all))], min(at, len(before.all))
		if slices.EqualFunc(page, before.all[was:min(at+pageSize, len(before.all))], sameItem) && len(page) > 0 {
			next.pages = append(next.pages, before.pages[at/pageSize])
		} else {
			next.pages = append(next.pages, joinItems(page))
		}
	}
	return next, true
}

// contained calls encode. What a peer offers must not end the process by a panic (SPEC G5b).
func contained(encode func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be encoded: %v", p)
		}
	}()
	return encode()
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
	next.tools, changed[client.ListTools] = listItems(before.tools, c.Tools, func(t *mcp.Tool) string { return t.Name }, checkTool, func(name string, err error) {
		b.log.Error("a tool cannot be listed", "tool", name, "err", err)
	})
	unlisted := func(what string, err error) {
		b.log.Error("cannot list what a peer offers", "what", what, "err", err)
	}
	next.resources, changed[client.ListResources] = listItems(before.resources, c.Resources, func(r *mcp.Resource) string { return r.URI }, checkResource, unlisted)
	next.templates, more = listItems(before.templates, c.Templates, func(t *mcp.ResourceTemplate) string { return t.URITemplate },
		func(*mcp.ResourceTemplate) (traits, error) { return traits{}, nil }, unlisted)
	changed[client.ListResources] = changed[client.ListResources] || more
	next.prompts, changed[client.ListPrompts] = listItems(before.prompts, c.Prompts, func(p *mcp.Prompt) string { return p.Name },
		func(*mcp.Prompt) (traits, error) { return traits{}, nil }, unlisted)
	b.lists.made.Store(next)
	if before.of != nil {
		b.audience.listChanged(changed)
	}
	return next
}

// checkTool says why a tool cannot be listed, if so.
func checkTool(t *mcp.Tool) (traits, error) {
	schema, err := wire.SchemaJSON(t.InputSchema)
	if err != nil {
		return traits{}, fmt.Errorf("its input schema: %w", err)
	}
	if kind := rawjson.Get(schema, "type"); rawjson.String(kind) != "object" {
		return traits{}, fmt.Errorf("its input schema is not of type \"object\" (%s)", wire.Brief(string(schema)))
	}
	if _, err := wire.SchemaJSON(t.OutputSchema); err != nil {
		return traits{}, fmt.Errorf("its output schema: %w", err)
	}
	headers, err := wire.HeaderParamsIn(schema)
	return traits{structured: t.OutputSchema != nil, headers: headers}, err
}

func checkResource(r *mcp.Resource) (traits, error) {
	_, err := url.Parse(r.URI)
	return traits{}, err
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
// waits for room keeps no page: the list may change meanwhile, and so may its length.
func (b *Bridge) page(ctx context.Context, r *Request, after string, of pageOf) (wire.Parts, string, *jsonrpc.Error) {
	counted := 0
	for {
		whole, refused := b.settle(ctx, r)
		if refused != nil {
			return nil, "", refused
		}
		page, next, keeps := of(whole, after)
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

// listing answers a request for a page of a list.
func listing(name string, of pageOf) serve {
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
