package client

import (
	"container/list"
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/turns"
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
	Subscription json.RawMessage    // the id of a subscriptions/listen; nil for a session
	turn         chan chan struct{} // holds its turn to tell one message, which ends when it is closed; made by open

	mu      sync.Mutex // guards the fields that follow
	Wants   [Lists]bool
	changed [Lists]bool
	waits   bool          // it is waiting for a turn, or has one
	updated *updates      // nil before the first
	by      *Notifier     // gives it turns; nil while nobody passes its news on
	caller  turns.Owner   // whose turns these are
	reader  *rules.Caller // who follows resources by it; nil for nobody
	told    *told         // of a session; nil before the first news
}

// updates are the URIs of resources that have changed.
type updates struct {
	list.List                          // in the order in which they changed
	at        map[string]*list.Element // in the list
}

// add adds a URI that is not there. It reports false if it is.
func (u *updates) add(uri string) bool {
	if u.at[uri] != nil {
		return false
	}
	u.at[uri] = u.PushBack(uri)
	return true
}

// drop removes a URI, if it is there.
func (u *updates) drop(uri string) {
	if u == nil || u.at[uri] == nil {
		return
	}
	u.Remove(u.at[uri])
	delete(u.at, uri)
}

// first returns the URI that changed first.
func (u *updates) first() (uri string, ok bool) {
	if u == nil || u.Len() == 0 {
		return "", false
	}
	uri, ok = u.Front().Value.(string)
	return uri, ok
}

// SetReader says who follows resources by it.
func (i *Inbox) SetReader(who rules.Caller) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reader = &who
}

// Reader returns who follows resources by it.
func (i *Inbox) Reader() rules.Caller {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.reader == nil {
		return rules.Caller{}
	}
	return *i.reader
}

// NewInbox is that of a session, which hears of all lists.
func NewInbox() *Inbox {
	return &Inbox{Wants: [Lists]bool{true, true, true}}
}

// ListChanged notes that lists have changed.
func (i *Inbox) ListChanged(which [Lists]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for l, changed := range which {
		i.changed[l] = i.changed[l] || changed && i.Wants[l]
	}
	i.queueLocked()
}

// ResourceUpdated notes that a resource that the client follows has changed.
func (i *Inbox) ResourceUpdated(uri string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.updated == nil {
		i.updated = &updates{at: map[string]*list.Element{}}
	}
	if i.updated.add(uri) {
		i.queueLocked()
	}
}

// Forget drops the news of a resource that the client does not follow any more.
func (i *Inbox) Forget(uri string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.updated.drop(uri)
	i.told.forget(uri)
}

// queueLocked has the client wait for its next turn if there is news, and somebody to pass it on.
func (i *Inbox) queueLocked() {
	if _, updated := i.updated.first(); i.by != nil && !i.waits && (updated || i.changed != [Lists]bool{}) {
		i.waits = true
		i.by.add(i.caller, i)
	}
}

// give gives the client its turn. It reports false if nobody passes its news on any more.
func (i *Inbox) give(turn chan struct{}) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.by == nil {
		i.waits = false
		return false
	}
	i.turn <- turn // who waits has no other
	return true
}

// next returns one notification that is due; nil if there is none any more.
func (i *Inbox) next() json.RawMessage {
	i.mu.Lock()
	defer i.mu.Unlock()
	for l, changed := range i.changed {
		if changed {
			i.changed[l] = false
			i.noteLocked(change{list: listKind(l)})
			return wire.Notification(changedBy[l], i.params(""))
		}
	}
	uri, updated := i.updated.first()
	if !updated {
		return nil
	}
	i.updated.drop(uri)
	i.noteLocked(change{uri: uri})
	return wire.Notification(wire.MethodUpdated, i.params(uri))
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

// Pass tells a client its news, as they come, until ctx ends, done is closed or the client
// has left. Each message has a turn of the caller's.
func (i *Inbox) Pass(ctx context.Context, done <-chan struct{}, to Outlet, by *Notifier, caller turns.Owner) {
	i.open(by, caller)
	defer i.close()
	for {
		select {
		case turn := <-i.turn:
			if i.tell(ctx, to, turn) != nil {
				return
			}
		case <-done:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (i *Inbox) tell(ctx context.Context, to Outlet, turn chan struct{}) error {
	defer close(turn)
	defer func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.waits = false
		i.queueLocked()
	}()
	if message := i.next(); message != nil {
		return to.Tell(ctx, message)
	}
	return nil
}

func (i *Inbox) open(by *Notifier, caller turns.Owner) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.turn == nil { // most sessions have no stream
		i.turn = make(chan chan struct{}, 1)
	}
	i.by, i.caller = by, caller
	i.queueLocked()
}

func (i *Inbox) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.by = nil
	select {
	case turn := <-i.turn:
		i.waits = false
		close(turn)
	default:
	}
}
