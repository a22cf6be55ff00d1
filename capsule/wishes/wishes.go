// Package wishes keeps the requests of clients that outlast a process of a capsule: each new process gets them too.
package wishes

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/orla-project/orla/internal/mcp/peer"
)

// Wishes are these requests. Its methods may be called from any goroutine.
type Wishes struct {
	mu         sync.Mutex              // guards the fields that follow
	level      json.RawMessage         // params of logging/setLevel
	subscribed map[string]subscription // by the params of resources/subscribe
	times      map[string]int          // how many of subscribed a URI has

	changed chan struct{} // holds a token when subscribed has changed
	news    updates
}

// Methods are the methods of these requests.
var Methods = []string{"logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// subscription is a resource that a process is told that clients follow.
type subscription struct {
	params json.RawMessage // of resources/subscribe
	uri    string          // in params; "" if there is none
	client string          // who asked for it; see peer.Request.Session
}

// New returns no Wishes yet.
func New() *Wishes {
	return &Wishes{
		times: map[string]int{}, changed: make(chan struct{}, 1),
		news: updates{waits: map[string]struct{}{}, wake: make(chan struct{}, 1), deliver: make(chan string)},
	}
}

// Changed holds a token when the resources that are followed have changed.
func (w *Wishes) Changed() <-chan struct{} { return w.changed }

// noteLocked says that subscribed has changed.
func (w *Wishes) noteLocked() {
	select {
	case w.changed <- struct{}{}:
	default: // a token is there already
	}
}

// Followed are the URIs of the resources that are subscribed to.
func (w *Wishes) Followed() []string {
	w.mu.Lock()
	uris := make([]string, 0, len(w.subscribed))
	for _, s := range w.subscribed {
		if s.uri != "" {
			uris = append(uris, s.uri)
		}
	}
	w.mu.Unlock()
	slices.Sort(uris)
	return slices.Compact(uris)
}

// MaxSubscribed bounds the subscriptions that a new process is told of. The bridge
// lets clients have as many in all.
const MaxSubscribed = 4096

// Remember keeps a request, if it is one of Methods. It is called before the request is
// sent, so that a process that takes over at that moment gets it too. forget undoes it, for
// a request that was refused. It reports false if there are too many: then nothing may be sent, as
// the next process would not be told.
func (w *Wishes) Remember(req peer.Request) (forget func(), ok bool) {
	forget = func() {}
	if !slices.Contains(Methods, req.Method) {
		return forget, true
	}
	key := string(req.Params)
	var of struct {
		URI string `json:"uri"`
	}
	_ = json.Unmarshal(req.Params, &of) // else there is none
	w.mu.Lock()
	defer w.mu.Unlock()
	switch req.Method {
	case "logging/setLevel":
		w.level = req.Params
	case "resources/subscribe":
		if w.subscribed == nil {
			w.subscribed = map[string]subscription{}
		}
		if _, was := w.subscribed[key]; was {
			break
		}
		if len(w.subscribed) == MaxSubscribed {
			return forget, false
		}
		w.subscribed[key] = subscription{req.Params, of.URI, req.Session}
		w.times[of.URI]++
		w.noteLocked()
		forget = func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.leaveLocked(key)
		}
	case "resources/unsubscribe":
		w.leaveLocked(key)
	}
	return forget, true
}

// leaveLocked ends a subscription.
func (w *Wishes) leaveLocked(key string) {
	if of, was := w.subscribed[key]; was {
		delete(w.subscribed, key)
		if w.times[of.uri]--; w.times[of.uri] == 0 {
			delete(w.times, of.uri)
		}
	}
	w.noteLocked()
}

// stands reports whether a subscription is still wanted.
func (w *Wishes) stands(params json.RawMessage) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.subscribed[string(params)]
	return is
}

func (w *Wishes) wantedLevel() json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.level
}

// Repeat sends the requests to a new process by tell. client is whose a request is; "" if nobody's.
func (w *Wishes) Repeat(ctx context.Context, tell func(ctx context.Context, method string, params json.RawMessage, client string)) {
	w.mu.Lock()
	subscribed := slices.Collect(maps.Values(w.subscribed))
	w.mu.Unlock()
	for sent, level := json.RawMessage(nil), w.wantedLevel(); !bytes.Equal(level, sent) && ctx.Err() == nil; level = w.wantedLevel() {
		tell(ctx, "logging/setLevel", level, "")
		sent = level // a client may have set another one while this was sent
	}
	for _, s := range subscribed {
		if !w.stands(s.params) {
			continue
		}
		if tell(ctx, "resources/subscribe", s.params, s.client); !w.stands(s.params) {
			tell(ctx, "resources/unsubscribe", s.params, s.client) // the client's may have come first
		}
	}
}
