package mcpbridge

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// gather is how long a change waits for others, so that clients are told of them at once.
const gather = 10 * time.Millisecond

// audience are the clients that are told of changes.
type audience struct {
	mu    sync.Mutex // guards the fields that follow
	of    map[*client.Inbox]bool
	due   [client.Lists]bool
	timer *time.Timer // set while something is due
}

func newAudience() *audience { return &audience{of: map[*client.Inbox]bool{}} }

func (a *audience) join(i *client.Inbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of[i] = true
}

func (a *audience) leave(i *client.Inbox) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.of, i)
}

// listChanged has all be told that lists have changed.
func (a *audience) listChanged(which [client.Lists]bool) {
	if which == [client.Lists]bool{} {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for l, changed := range which {
		a.due[l] = a.due[l] || changed
	}
	if a.timer == nil {
		a.timer = time.AfterFunc(gather, a.tell)
	}
}

func (a *audience) tell() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.of {
		i.ListChanged(a.due)
	}
	a.due, a.timer = [client.Lists]bool{}, nil
}

// PassNews tells a client of an owner its news, as they come, until ctx ends, done is closed or
// the client has left. The clients of a caller are told in turn.
func (b *Bridge) PassNews(ctx context.Context, in *client.Inbox, done <-chan struct{}, to client.Outlet, owner turns.Owner) {
	in.Pass(ctx, done, to, b.notifier, owner.Tenant())
}

// listen answers a subscriptions/listen: the client is told of what it has asked for until
// it cancels the request, or leaves.
func (b *Bridge) listen(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	wanted := rawjson.Get(r.Params.Raw, "notifications")
	if !rawjson.IsObject(wanted) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "missing required 'notifications' field"}
	}
	var allowed mcp.NotificationSubscriptions
	if json.Unmarshal(wanted, &allowed) != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	}
	in := client.NewInbox()
	in.Subscription = r.ID
	in.Wants = [client.Lists]bool{client.ListTools: allowed.ToolsListChanged, client.ListPrompts: allowed.PromptsListChanged, client.ListResources: allowed.ResourcesListChanged}
	b.audience.join(in)
	defer b.left(in)
	slices.Sort(allowed.ResourceSubscriptions)
	allowed.ResourceSubscriptions = slices.Compact(allowed.ResourceSubscriptions)
	for _, uri := range allowed.ResourceSubscriptions {
		if refused := b.followFor(ctx, r, in, uri); refused != nil {
			return nil, refused
		}
	}
	meta := slices.Concat([]byte(`{"`+mcp.MetaKeySubscriptionID+`":`), r.ID, wire.Closing)
	params := slices.Concat([]byte(`{"_meta":`), meta, []byte(`,"notifications":`), rawjson.Must(allowed), wire.Closing)
	var err error
	if release, ok := r.speak(); ok {
		err = r.to.Tell(ctx, wire.Notification("notifications/subscriptions/acknowledged", params))
		release()
	}
	if err == nil && (in.Wants != [client.Lists]bool{} || len(allowed.ResourceSubscriptions) > 0) {
		b.PassNews(ctx, in, nil, r.to, r.from.As)
	}
	result, _ := rawjson.Edit(meta, nil, wire.Member{Key: mcp.MetaKeyServerInfo, Value: b.selfJSON})
	return wire.Parts{[]byte(`{"resultType":"complete","_meta":`), result, wire.Closing}, nil
}
