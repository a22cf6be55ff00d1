package capsule

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/capsule/protocol"
	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/capsule/refusal"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/mcp/rpc"
	"github.com/orla-project/orla/manifest"
)

const (
	// listPatience is how long an MCP server may take for a page of a list.
	listPatience = 10 * time.Second
	// expectPatience is how long lists and calls of unknown tools wait for the first lists of a capsule that is READY, if
	// they did not wait for it any more.
	expectPatience = 2 * time.Second
	// unheardPause is the time before a remote server that did not answer is asked again.
	unheardPause = 10 * time.Second
)

// followLists asks what the capsule offers, now and whenever it says that this has changed.
func (in *incarnation) followLists(ctx context.Context) {
	defer in.conn.HasListed(false) // if it has not
	in.introduce(ctx)
	early := in.c.offers.Early()
	if early > 0 && !in.tellsNothing() {
		in.repeatWishes(ctx)
		if !in.conn.Pause(ctx, early) { // an approved call has to know what this process offers (SPEC-TOOLS 8.7)
			return
		}
	}
	for first := true; ; first = false {
		said, ok := in.learn(ctx)
		if ok {
			in.c.offers.Set(said)
			in.conn.HasListed(true)
		}
		if in.tellsNothing() {
			return
		}
		if first && early == 0 {
			in.repeatWishes(ctx)
		}
		if in.asking.silent && !in.asking.insisted {
			in.asking.insisted = true // it is one tool for now; on a busy machine the answer may come yet
			continue
		}
		if !pace.Sleep(ctx, in.c.offers.Rest()) || !in.awaitRelist(ctx) {
			return
		}
	}
}

// repeatWishes tells the process what clients have asked of those before it, and goes on to do so.
func (in *incarnation) repeatWishes(ctx context.Context) {
	in.spawn(func() {
		if in.conn.Stateless() {
			in.conn.Follow(ctx, in.c.wishes, in.spawn, in.relistSoon)
		} else {
			in.c.wishes.Repeat(ctx, in.tell)
		}
	})
}

// awaitRelist waits until the lists are to be requested again: when the capsule says that they have changed, or after unheardPause for
// a remote server that did not answer, and where what is pinned could not be stored. It reports false if ctx ends before.
func (in *incarnation) awaitRelist(ctx context.Context) bool {
	var again <-chan time.Time
	if in.asking.unheard && in.c.tool.Runtime.Remote != nil || in.c.offers.Troubled() {
		again = time.After(unheardPause)
	}
	select {
	case <-in.relist:
	case <-again:
	case <-ctx.Done():
		return false
	}
	return true
}

// introduce asks a capsule that has said hello for its capabilities too.
func (in *incarnation) introduce(ctx context.Context) {
	if in.tellsNothing() || in.taken || in.c.tool.Runtime.Handshake != manifest.HandshakeHello {
		return
	}
	asking, cancel := context.WithTimeout(ctx, 2*protocol.AskPatience) // for each of the two questions
	defer cancel()
	if err := in.conn.Negotiate(asking); err != nil {
		in.c.log.Debug("a capsule does not know initialize; it is asked for its lists all the same", "tool", in.c.tool.Name, "err", err)
	}
}

// tellsNothing reports whether the capsule has no lists to ask for: its manifest declares what it offers, or it is one tool.
func (in *incarnation) tellsNothing() bool {
	r := in.c.tool.Runtime
	return r.Declared || r.Handshake == manifest.HandshakeHello && !in.hello.OffersLists()
}

// learn asks what the capsule offers (SPEC D7), by every list that it says it has. It reports false if the process ended: lists that
// are missing then must not be taken for empty ones. If an MCP server does not answer in time, its previous list of that kind stays.
func (in *incarnation) learn(ctx context.Context) (o records.Offered, ok bool) {
	if in.tellsNothing() {
		return records.Offered{}, ctx.Err() == nil
	}
	before := in.c.offers.Last()
	ok, in.asking.unheard = true, false
	caps, patience := in.conn.Capabilities(), listPatience
	if caps == nil { // all that is known is its hello
		caps = in.hello.Capability()
		if !in.asking.insisted {
			patience = protocol.AskPatience
		}
	}
	list := func(method, key string, before []json.RawMessage) []json.RawMessage {
		items, err := in.conn.List(ctx, method, key, patience)
		switch {
		case err == nil:
			return items
		case errors.Is(err, protocol.ErrLost):
			ok = false
		case refused(err):
		case in.c.tool.Runtime.Handshake == manifest.HandshakeMCP:
			items, in.asking.unheard = before, true
		default:
			in.asking.silent = true
			if !in.asking.insisted { // it is asked again, with more patience
				items = before
			}
		}
		in.c.log.Info("a capsule does not list what it offers", "tool", in.c.tool.Name, "method", method, "err", refusal.Shortened(err))
		return items
	}
	if caps.Tools != nil {
		o.Tools = list("tools/list", "tools", before.Tools)
	}
	if caps.Resources != nil {
		o.Reads = true
		o.Resources = list("resources/list", "resources", before.Resources)
		o.Templates = list("resources/templates/list", "resourceTemplates", before.Templates)
	}
	if caps.Prompts != nil {
		o.Prompts = list("prompts/list", "prompts", before.Prompts)
	}
	o.Completes, o.Logs = caps.Completions != nil, caps.Logging != nil //nolint:staticcheck // logging is deprecated, and in use
	return o, ok
}

// refused reports whether a capsule said that it has no such list.
func refused(err error) bool {
	_, ok := errors.AsType[*jsonrpc.Error](err)
	return ok
}

// missed reports whether a request was not sent because the process was ending.
func missed(err error) bool { return errors.Is(err, rpc.ErrNotSent) }

// tell sends one such request to the process. client is whose it is; "" if nobody's. The
// process must not ask the client about it.
func (in *incarnation) tell(ctx context.Context, method string, params json.RawMessage, client string) {
	ctx, cancel := context.WithTimeout(ctx, protocol.AskPatience)
	defer cancel()
	_, err := in.conn.Call(ctx, rpc.Request{Method: method, Params: protocol.Just(params), Client: client, Own: true})
	if err != nil && ctx.Err() == nil {
		in.c.log.Debug("a capsule refuses what clients have asked for", "tool", in.c.tool.Name, "method", method, "err", err)
	}
}
