package protocol

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/rpc"
)

// listenEach is the least time between two subscriptions to changes, for each byte of the
// first: it has all that clients follow, whatever has changed (SPEC S1).
const listenEach = time.Second >> 20

// Followed are the resources that clients follow.
type Followed interface {
	// Followed returns their URIs.
	Followed() []string
	// Changed holds a token when these are others.
	Changed() <-chan struct{}
}

// Follow asks a peer that speaks 2026-07-28 to say when its lists, and the resources that clients follow, have changed,
// until ctx ends. spawn runs what it waits for in a goroutine. missed is called when a change of a list may have been
// missed.
func (p *Peer) Follow(ctx context.Context, resources Followed, spawn func(func()), missed func()) {
	const firstPause, lastPause = time.Second, time.Minute
	pause, release := firstPause, func() {}
	defer func() { release() }()
	var next time.Time // before which no other subscription is made
	for {
		if !pace.Sleep(ctx, time.Until(next)) {
			return
		}
		select {
		case <-resources.Changed(): // meanwhile
		default:
		}
		var ended chan error
		if filter := p.filter(resources.Followed()); filter != nil {
			next = time.Now().Add(time.Duration(len(filter)) * listenEach)
			listening, cancel := context.WithCancel(ctx)
			ended = make(chan error, 1)
			spawn(func() { ended <- p.listen(listening, filter) })
			p.awaitAcknowledged(ctx)
			release() // ends the previous request only now, so that nothing is missed
			release = cancel
		} else {
			release()
			release = func() {}
		}
		select {
		case <-ctx.Done():
			return
		case <-resources.Changed():
		case err := <-ended:
			if _, refused := errors.AsType[*jsonrpc.Error](err); refused {
				p.orla.log.Debug("a server does not tell of changes", "tool", p.orla.tool.Name, "err", err)
				select {
				case <-resources.Changed():
				case <-ctx.Done():
					return
				}
				continue
			}
			if !pace.Sleep(ctx, pause) {
				return
			}
			pause = min(2*pause, lastPause)
			missed()
		}
	}
}

// Acknowledged notes that the peer has acknowledged a subscription.
func (p *Peer) Acknowledged() {
	select {
	case p.acknowledged <- struct{}{}:
	default: // a token is there already
	}
}

// awaitAcknowledged waits, for AskPatience at most, until the peer acknowledges the subscription.
func (p *Peer) awaitAcknowledged(ctx context.Context) {
	select {
	case <-p.acknowledged:
	case <-time.After(AskPatience):
	case <-ctx.Done():
	}
}

// listen subscribes to changes, with a filter. It returns
// when ctx or the subscription ends.
func (p *Peer) listen(ctx context.Context, filter json.RawMessage) error {
	params := p.orla.stateless(slices.Concat([]byte(`{"notifications":`), filter, []byte("}")))
	_, err := p.Call(ctx, rpc.Request{Method: "subscriptions/listen", Params: params, Own: true, Standing: true})
	return err
}

// filter returns the params of a subscription for everything that the peer can report; nil if
// that is nothing. followed are the URIs of the resources that clients follow.
func (p *Peer) filter(followed []string) json.RawMessage {
	wanted := struct {
		Tools     bool     `json:"toolsListChanged,omitempty"`
		Prompts   bool     `json:"promptsListChanged,omitempty"`
		Resources bool     `json:"resourcesListChanged,omitempty"`
		Followed  []string `json:"resourceSubscriptions,omitempty"`
	}{
		Tools:     p.caps.Tools != nil && p.caps.Tools.ListChanged,
		Prompts:   p.caps.Prompts != nil && p.caps.Prompts.ListChanged,
		Resources: p.caps.Resources != nil && p.caps.Resources.ListChanged,
	}
	if p.caps.Resources != nil && p.caps.Resources.Subscribe {
		wanted.Followed = followed
	}
	raw, err := json.Marshal(wanted)
	if err != nil { // booleans and strings
		panic(err)
	}
	if rawjson.Empty(raw) {
		return nil
	}
	return raw
}
