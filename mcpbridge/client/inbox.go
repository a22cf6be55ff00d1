package client

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// listKind is one of the lists whose changes clients are told of.
type listKind int

// The lists.
const (
	ListTools listKind = iota
	ListPrompts
	ListResources // and templates
	// Lists is how many there are.
	Lists
)

// changedBy are the notifications that a list has changed.
var changedBy = [Lists]string{"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"}

// Inbox has the news for one client that it has not been told yet. However often the same
// thing changes, it is told once.
type Inbox struct {
	Subscription json.RawMessage // the id of a subscriptions/listen; nil for a session
	news         chan struct{}   // holds a token when there are any

	mu      sync.Mutex // guards the fields that follow
	Wants   [Lists]bool
	changed [Lists]bool
	updated map[string]bool // URIs of resources
}

// NewInbox is that of a session, which hears of all lists.
func NewInbox() *Inbox {
	return &Inbox{news: make(chan struct{}, 1), Wants: [Lists]bool{true, true, true}}
}

// ListChanged notes that lists have changed.
func (i *Inbox) ListChanged(which [Lists]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	some := false
	for l, changed := range which {
		if changed && i.Wants[l] {
			i.changed[l], some = true, true
		}
	}
	if some {
		i.wakeLocked()
	}
}

// ResourceUpdated notes that a resource that the client follows has changed.
func (i *Inbox) ResourceUpdated(uri string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.updated == nil {
		i.updated = map[string]bool{}
	}
	i.updated[uri] = true
	i.wakeLocked()
}

func (i *Inbox) wakeLocked() {
	select {
	case i.news <- struct{}{}:
	default:
	}
}

// take returns what is due: the lists that have changed, and the URIs of resources.
func (i *Inbox) take() (changed [Lists]bool, updated []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed, updated = i.changed, slices.Sorted(maps.Keys(i.updated))
	i.changed = [Lists]bool{}
	clear(i.updated)
	return changed, updated
}

// due are the notifications of what take returns, each made when it is its turn: the id of
// a subscription may be long.
func (i *Inbox) due() iter.Seq[json.RawMessage] {
	changed, updated := i.take()
	return func(yield func(json.RawMessage) bool) {
		for l, changed := range changed {
			if changed && !yield(wire.Notification(changedBy[l], i.params(""))) {
				return
			}
		}
		for _, uri := range updated {
			if !yield(wire.Notification(wire.MethodUpdated, i.params(uri))) {
				return
			}
		}
	}
}

// params are those of a notification of a resource, or of a list if uri is "".
func (i *Inbox) params(uri string) json.RawMessage {
	out := []byte("{")
	if i.Subscription != nil {
		out = append(append(append(out, `"_meta":{"`+mcp.MetaKeySubscriptionID+`":`...), i.Subscription...), '}')
	}
	if uri != "" {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = rawjson.AppendQuote(append(out, `"uri":`...), uri)
	}
	return append(out, '}')
}

// Forget drops the news of a resource that the client does not follow any more.
func (i *Inbox) Forget(uri string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.updated, uri)
}

// Pass tells a client its news, as they come, until ctx ends, done is closed or the client
// has left.
func (i *Inbox) Pass(ctx context.Context, done <-chan struct{}, to Outlet) {
	for {
		select {
		case <-i.news:
		case <-done:
			return
		case <-ctx.Done():
			return
		}
		for message := range i.due() {
			if to.Tell(ctx, message) != nil {
				return
			}
		}
	}
}
