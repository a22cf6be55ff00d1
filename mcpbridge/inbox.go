package mcpbridge

import (
	"context"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// listKind is one of the lists whose changes clients are told of.
type listKind int

const (
	listTools listKind = iota
	listPrompts
	listResources // and templates
	lists
)

// changedBy are the notifications that a list has changed.
var changedBy = [lists]string{"notifications/tools/list_changed", "notifications/prompts/list_changed", "notifications/resources/list_changed"}

// inbox has the news for one client that it has not been told yet. However often the same
// thing changes, it is told once.
type inbox struct {
	subscription json.RawMessage // the id of a subscriptions/listen; nil for a session
	news         chan struct{}   // holds a token when there are any

	mu      sync.Mutex // guards the fields that follow
	wants   [lists]bool
	changed [lists]bool
	updated map[string]bool // URIs of resources
}

// newInbox is that of a session, which hears of all lists.
func newInbox() *inbox {
	return &inbox{news: make(chan struct{}, 1), wants: [lists]bool{true, true, true}}
}

// listChanged notes that lists have changed.
func (i *inbox) listChanged(which [lists]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	some := false
	for l, changed := range which {
		if changed && i.wants[l] {
			i.changed[l], some = true, true
		}
	}
	if some {
		i.wakeLocked()
	}
}

// resourceUpdated notes that a resource that the client follows has changed.
func (i *inbox) resourceUpdated(uri string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.updated == nil {
		i.updated = map[string]bool{}
	}
	i.updated[uri] = true
	i.wakeLocked()
}

func (i *inbox) wakeLocked() {
	select {
	case i.news <- struct{}{}:
	default:
	}
}

// take returns what is due: the lists that have changed, and the URIs of resources.
func (i *inbox) take() (changed [lists]bool, updated []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	changed, updated = i.changed, slices.Sorted(maps.Keys(i.updated))
	i.changed = [lists]bool{}
	clear(i.updated)
	return changed, updated
}

// due are the notifications of what take returns, each made when it is its turn: the id of
// a subscription may be long.
func (i *inbox) due() iter.Seq[json.RawMessage] {
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
func (i *inbox) params(uri string) json.RawMessage {
	out := []byte("{")
	if i.subscription != nil {
		out = append(append(append(out, `"_meta":{"`+mcp.MetaKeySubscriptionID+`":`...), i.subscription...), '}')
	}
	if uri != "" {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = rawjson.AppendQuote(append(out, `"uri":`...), uri)
	}
	return append(out, '}')
}

// forget drops the news of a resource that the client does not follow any more.
func (i *inbox) forget(uri string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.updated, uri)
}

// pass tells a client its news, as they come, until ctx ends, done is closed or the client
// has left.
func (i *inbox) pass(ctx context.Context, done <-chan struct{}, to outlet) {
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
