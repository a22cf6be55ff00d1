package mcpbridge

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/results"
	"github.com/orla-project/orla/mcpbridge/subscription"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// HoldForRequests takes of that room, which has to be free, and returns what gives it back.
func (b *Bridge) HoldForRequests(line string, n int64) func() {
	if !b.requests.Try(turns.Owner{Session: line}, n) {
		panic("there is no room")
	}
	return func() { b.requests.Give(turns.Owner{Session: line}, n) }
}

// FreeForAnswers is how many bytes of answers there is room for.
func (b *Bridge) FreeForAnswers() int64 { return b.room.Free() }

// HoldForAnswers takes of that room for one who is allowed more than there is, and
// returns what gives it back.
func (b *Bridge) HoldForAnswers(n int64) func() {
	ctx, release := b.room.Open(context.Background(), turns.Owner{Session: "another"})
	_ = turns.AccountOf(ctx).Need(ctx, n) // it is free, or the one beyond
	further, releaseFurther := b.room.Open(context.Background(), turns.Owner{Session: "a third"})
	_ = turns.AccountOf(further).Need(further, n) // the one beyond
	return func() { release(); releaseFurther() }
}

// HoldTurns is others that work on large answers, in all turns there are, until what it
// returns is called.
func (b *Bridge) HoldTurns() func() {
	var ends []func()
	for i := range runtime.GOMAXPROCS(0) {
		ctx, release := b.room.Open(context.Background(), turns.Owner{Caller: fmt.Sprint("another ", i)})
		account := turns.AccountOf(ctx)
		_ = account.BeginWork(ctx) // it ends with its turn
		ends = append(ends, account.EndWork, release)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// WaitForTurn is how many wait for a turn to work on a large answer.
func (b *Bridge) WaitForTurn() int { return b.room.Waiting() }

// HoldListing is another that lists what the catalog has, until what it returns is called.
func (b *Bridge) HoldListing() func() {
	b.lists.making.Lock()
	return b.lists.making.Unlock
}

// WaitForRoom is how many requests wait for room for what they read or list.
func (b *Bridge) WaitForRoom() int64 { return 2*maxReads - b.large.reads.Free() }

// SetReadPatience is how long a read of a kept answer waits for room.
func (b *Bridge) SetReadPatience(d time.Duration) { b.large.patience = d }

// FreeForRequests is how many bytes of requests there is room for.
func (b *Bridge) FreeForRequests() int64 { return b.requests.Free() }

// Methods are the requests and notifications that clients may send.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// Passed is a peer's result as a client of an era gets it, or false for what is
// no result.
func Passed(raw []byte, newest bool) ([]byte, bool) {
	p, ok := results.Look(raw, true)
	if !ok {
		return nil, false
	}
	if newest {
		return p.Parts([]byte(`{"name":"orla"}`)).Join(), true
	}
	return p.Parts(nil).Join(), true
}

// Read takes a message apart, as a request of some client's, and returns its id and whether
// it is refused.
func Read(b *Bridge, raw []byte) (id json.RawMessage, refused bool) {
	m, why := wire.ReadMessage(raw)
	if why == nil && m.Asks() {
		_, why = b.NewRequest(m, client.Origin{}, nil, nil)
	}
	return m.ID, why != nil
}

// Held is how many bytes of the room of all answers are held.
func (b *Bridge) Held() int64 { return answersBudget - b.room.Free() }

// Levels is how many sessions have set a level.
func (b *Bridge) Levels() (n int) {
	b.verbosity.mu.Lock()
	defer b.verbosity.mu.Unlock()
	for _, of := range b.verbosity.of {
		n += of
	}
	return n
}

// FollowedResources is of how many resources something is kept.
func (b *Bridge) FollowedResources() int {
	return b.subscriptions.Resources()
}

// Follow makes a new client follow a resource.
func (b *Bridge) Follow(ctx context.Context, uri string) error {
	return b.followResource(ctx, client.NewInbox(), uri, turns.Owner{Session: uri}, subscription.For{})
}

// FreeSubscriptions is how many more subscriptions there is room for.
func (b *Bridge) FreeSubscriptions() int64 { return b.subscriptions.Free() }

// SeenBy makes the lists of a caller again, and reports whether it is shown a tool and a resource.
func (b *Bridge) SeenBy(caller, tool, uri string) (tools, resources bool) {
	whole := b.current()
	whole.views.mu.Lock()
	whole.views.of = map[string]*listed{}
	whole.views.mu.Unlock()
	view := b.visible(whole, &client.Origin{Caller: caller})
	_, tools = view.tools.Find(tool)
	_, resources = view.resources.Find(uri)
	return tools, resources
}

// ViewOf returns the lists of a caller, and how many of other callers there are besides those of all.
func (b *Bridge) ViewOf(caller string) (lists any, views int) {
	whole := b.current()
	view := b.visible(whole, &client.Origin{Caller: caller})
	whole.views.mu.Lock()
	defer whole.views.mu.Unlock()
	return view, len(whole.views.of)
}
