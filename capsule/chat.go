package capsule

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/recovered"
	"github.com/orla-project/orla/internal/rpc"
	"github.com/orla-project/orla/internal/turns"
)

// This file is about what a capsule says in addition to its answers: progress and log
// messages for the client that asked, and requests of its own to that client (SPEC
// D6, D8).
//
// A process serves many clients, and before 2026-07-28 MCP does not say on a pipe
// which of them a log message or a request is for. A message may say it: by a
// progress token, or by the id of a request (peer.MetaCall). One that does not goes
// to the only client that the process has ever served. Once there were two, it
// goes to nobody: it may be about a call of the other one, even if that call has
// ended (SPEC N2, docs/decisions/0030).

// token reads the progress token of params, or of their _meta; 0 if there is none.
func token(params json.RawMessage) (id int64) {
	if !rawjson.IsObject(params) {
		return 0
	}
	read := func(key []byte, value json.RawMessage) bool {
		if string(key) == "progressToken" {
			id, _ = strconv.ParseInt(string(value), 10, 64)
		}
		return true
	}
	rawjson.Members(params, func(key []byte, value json.RawMessage) bool {
		if string(key) == "_meta" && rawjson.IsObject(value) {
			rawjson.Members(value, read)
		}
		return read(key, value)
	})
	return id
}

// progress passes notifications/progress to the call that it belongs to.
func (in *incarnation) progress(params json.RawMessage) {
	if id := token(params); wantsProgress(in.conn.About(id)) {
		in.conn.Note(id, "notifications/progress", params)
	}
}

func wantsProgress(about any) bool {
	client, ok := about.(peer.Client)
	return ok && client.WantsProgress()
}

// message passes notifications/message to the client that it is for.
func (in *incarnation) message(params json.RawMessage) {
	in.c.log.Debug("a capsule's log message", "tool", in.c.tool.Name, "params", string(params))
	if id := cmp.Or(peer.About(params), token(params)); id != 0 {
		if _, ok := in.conn.About(id).(peer.Client); ok {
			in.conn.Note(id, "notifications/message", peer.Unmarked(params))
		}
		return
	}
	if id, _, shared := in.conn.Sole(); !shared {
		in.conn.Note(id, "notifications/message", params)
	}
}

// codeUnattributed is the code of the error that a capsule gets for a request that
// is for none of the clients that it could be for.
const codeUnattributed = jsonrpc.CodeInvalidRequest

// meant returns the client that params of a question are for. A progress token in
// them is the capsule's own, and says nothing.
func (in *incarnation) meant(params json.RawMessage) (peer.Client, *jsonrpc.Error) {
	if id := peer.About(params); id != 0 {
		client, ok := in.conn.About(id).(peer.Client)
		if !ok {
			return nil, unattributed("the request %d, which %q in _meta names, is not one that a client waits for", id, peer.MetaCall)
		}
		return client, nil
	}
	_, about, shared := in.conn.Sole()
	client, ok := about.(peer.Client)
	switch {
	case shared:
		return nil, unattributed("this process has served several clients, and the request does not say which of them it is for: "+
			"name the id of the client's request as %q in _meta, or serve MCP 2026-07-28", peer.MetaCall)
	case !ok:
		return nil, unattributed("no client that could be asked is waiting for %s", in.c.tool.Name)
	}
	return client, nil
}

func unattributed(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeUnattributed, Message: fmt.Sprintf(format, args...)}
}

func refusal(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf(format, args...)}
}

// updated passes on that a resource was updated.
func (in *incarnation) updated(params json.RawMessage) {
	var about struct {
		URI string `json:"uri"`
	}
	if json.Unmarshal(params, &about) != nil || about.URI == "" {
		return
	}
	select {
	case in.c.updates <- about.URI:
	default: // it says "look again", and enough of that is on its way
	}
}

// answer answers a request of the capsule's own.
func (in *incarnation) answer(id json.RawMessage, method string, params json.RawMessage) {
	switch method {
	case "ping":
		in.conn.Reply(turns.Line{}, id, json.RawMessage("{}"), nil)
	case "sampling/createMessage", "elicitation/create", "roots/list":
		in.asks.begin(in, id, method, params)
	default:
		const enough = 64
		in.conn.Reply(turns.Line{}, id, nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: fmt.Sprintf("method not found: %q", method[:min(len(method), enough)])})
	}
}

// asks are the requests that a capsule has made of clients.
type asks struct {
	mu     sync.Mutex                     // guards the fields that follow
	open   map[string]*context.CancelFunc // by their ids as they came
	shares *turns.Shares                  // of 2*maxAsks
	bytes  *turns.Shares                  // of most, of their params
	most   int64
	closed bool
	wg     sync.WaitGroup
}

// maxAsks bounds the requests that a capsule may have open to one caller. To all it
// may have twice as many, so that no caller keeps it from asking another.
const maxAsks = 64

// newAsks bounds the params of what is open, which stay in memory, so that a session has room
// for the largest message, beside another caller for one.
func newAsks(maxMessage int64) asks {
	most := roomForLargest(maxMessage)
	return asks{open: map[string]*context.CancelFunc{}, shares: turns.NewShares(2 * maxAsks), bytes: turns.NewShares(most), most: most}
}

// roomForLargest is how many bytes of messages there is room for at least, so that a session
// has room for the largest.
func roomForLargest(maxMessage int64) int64 {
	const least, parts = 64 << 20, 4 // of which a session has one; see turns.Shares
	return max(least, parts*maxMessage)
}

// begin asks the client that is meant, and answers the capsule when it has.
func (a *asks) begin(in *incarnation, id json.RawMessage, method string, params json.RawMessage) {
	client, none := in.meant(params)
	if none != nil {
		in.conn.Reply(turns.Line{}, id, nil, none)
		return
	}
	key := string(id)
	ctx, cancel := context.WithCancel(context.Background())
	size := int64(len(params))
	if why := a.enter(key, client.Line(), size, &cancel); why != "" {
		cancel()
		in.conn.Reply(client.Line(), id, nil, refusal("%s", why))
		return
	}
	go func() {
		defer a.wg.Done()
		defer a.shares.Give(client.Line(), 1)
		defer a.bytes.Give(client.Line(), size)
		defer recovered.To(in.c.log, "ask a client what a capsule asks", func(any) {
			if a.over(key, &cancel) {
				in.conn.Reply(client.Line(), id, nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "Orla failed; its log has the details"})
			}
		})
		result, err := client.Ask(ctx, method, peer.Unmarked(params))
		if !a.over(key, &cancel) {
			return // the capsule does not wait any more
		}
		if err != nil {
			in.conn.Reply(client.Line(), id, nil, asWire(err))
			return
		}
		in.conn.Reply(client.Line(), id, result, nil)
	}()
}

// enter counts a request in, or says why it cannot be made.
func (a *asks) enter(key string, line turns.Line, size int64, cancel *context.CancelFunc) (why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch _, taken := a.open[key]; {
	case taken:
		return "a request with this id is open"
	case a.closed:
		return "the process is being stopped"
	case !a.shares.Try(line, 1):
		return fmt.Sprintf("too many requests are open: %d to all clients at most, and half of those that are free to one of them; wait for answers", 2*maxAsks)
	case !a.bytes.Try(line, size):
		a.shares.Give(line, 1)
		return fmt.Sprintf("the requests that are open are too large: %d bytes to all clients at most, and no client has more than its share of them; wait for answers", a.most)
	}
	a.open[key] = cancel
	a.wg.Add(1)
	return ""
}

func asWire(err error) *jsonrpc.Error {
	if wire, ok := err.(*jsonrpc.Error); ok { //nolint:errorlint // peer.Client gives it bare
		return wire
	}
	return refusal("the client could not be asked: %v", err)
}

func (a *asks) end(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel, ok := a.open[key]; ok {
		(*cancel)()
		delete(a.open, key)
	}
}

// over lets an id be used again, before its request is answered, and reports
// whether the capsule still waits for it.
func (a *asks) over(key string, cancel *context.CancelFunc) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if (*cancel)(); a.open[key] != cancel {
		return false
	}
	delete(a.open, key)
	return true
}

// cancel ends the request that a notifications/cancelled names.
func (a *asks) cancel(params json.RawMessage) {
	var about struct {
		ID json.RawMessage `json:"requestId"`
	}
	if json.Unmarshal(params, &about) == nil {
		a.end(string(about.ID))
	}
}

// close ends all of them, and lets no other begin.
func (a *asks) close() {
	a.mu.Lock()
	a.closed = true
	for _, cancel := range a.open {
		(*cancel)()
	}
	clear(a.open)
	a.mu.Unlock()
	a.wg.Wait()
}

// wishes are what clients have asked of a capsule for good, and what therefore
// each of its processes must be told.
type wishes struct {
	mu         sync.Mutex              // guards the fields that follow
	level      json.RawMessage         // params of logging/setLevel
	subscribed map[string]subscription // by the params of resources/subscribe

	changed chan struct{} // holds a token when subscribed has changed
}

// wishMethods are the requests that are wishes.
var wishMethods = []string{"logging/setLevel", "resources/subscribe", "resources/unsubscribe"}

// subscription is a resource that a process is told that clients follow.
type subscription struct {
	params json.RawMessage // of resources/subscribe
	client string          // who asked for it; see peer.Request.Session
}

// noteLocked says that subscribed has changed.
func (w *wishes) noteLocked() {
	select {
	case w.changed <- struct{}{}:
	default: // whoever looks sees this as well
	}
}

// followed are the URIs of the resources that are subscribed to.
func (w *wishes) followed() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var uris []string
	for _, s := range w.subscribed {
		var of struct {
			URI string `json:"uri"`
		}
		if json.Unmarshal(s.params, &of) == nil && of.URI != "" {
			uris = append(uris, of.URI)
		}
	}
	slices.Sort(uris)
	return slices.Compact(uris)
}

// maxSubscribed bounds the subscriptions that a new process is told of. The bridge
// lets clients have as many in all.
const maxSubscribed = 4096

// remember notes a request that is such a wish, before it is made: a process that
// takes over meanwhile is told as well. forget undoes that, when it was refused.
func (w *wishes) remember(req peer.Request) (forget func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := string(req.Params)
	switch req.Method {
	case "logging/setLevel":
		w.level = req.Params
	case "resources/subscribe":
		if w.subscribed == nil {
			w.subscribed = map[string]subscription{}
		}
		if _, was := w.subscribed[key]; !was && len(w.subscribed) < maxSubscribed {
			w.subscribed[key] = subscription{req.Params, req.Session}
			w.noteLocked()
			return func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				delete(w.subscribed, key)
				w.noteLocked()
			}
		}
	case "resources/unsubscribe":
		delete(w.subscribed, key)
		w.noteLocked()
	}
	return func() {}
}

// stands reports whether a subscription is still wanted.
func (w *wishes) stands(params json.RawMessage) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, is := w.subscribed[string(params)]
	return is
}

func (w *wishes) wantedLevel() json.RawMessage {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.level
}

// repeat tells a new process.
func (w *wishes) repeat(ctx context.Context, in *incarnation) {
	w.mu.Lock()
	subscribed := slices.Collect(maps.Values(w.subscribed))
	w.mu.Unlock()
	for told, level := json.RawMessage(nil), w.wantedLevel(); !bytes.Equal(level, told) && ctx.Err() == nil; level = w.wantedLevel() {
		in.tell(ctx, "logging/setLevel", level, "")
		told = level // a client may have wished for another meanwhile, and been overtaken
	}
	for _, s := range subscribed {
		if !w.stands(s.params) {
			continue
		}
		if in.tell(ctx, "resources/subscribe", s.params, s.client); !w.stands(s.params) {
			in.tell(ctx, "resources/unsubscribe", s.params, s.client) // the client's may have come first
		}
	}
}

// tell makes a request of the process's for a client that must not be asked about it; for
// nobody if client is "".
func (in *incarnation) tell(ctx context.Context, method string, params json.RawMessage, client string) {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	_, err := in.conn.Call(ctx, rpc.Request{Method: method, Params: just(params), Client: client, Own: true})
	if err != nil && ctx.Err() == nil {
		in.c.log.Debug("a capsule refuses what clients have asked for", "tool", in.c.tool.Name, "method", method, "err", err)
	}
}

// limiter lets a few lines of log pass in each minute, and counts the others.
type limiter struct {
	mu    sync.Mutex // guards the fields that follow
	since time.Time
	shown int
	left  int
}

// allow reports whether a line may be logged, and how many were not since the
// last one that was.
func (l *limiter) allow() (ok bool, left int) {
	const window, most = time.Minute, 10
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.since) >= window {
		l.since, l.shown = now, 0
	}
	if l.shown >= most {
		l.left++
		return false, 0
	}
	l.shown++
	left, l.left = l.left, 0
	return true, left
}
