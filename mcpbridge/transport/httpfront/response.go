package httpfront

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// Limits are how long the front waits for clients.
type Limits struct {
	// Body is how long a client may take to send a small body, and to send nothing
	// more of a larger one.
	Body time.Duration
	// Room is how long a request may wait for room for its body.
	Room time.Duration
	// Write is how long it may take to receive writeChunk.
	Write time.Duration
	// KeepAlive is how often an event stream gets a comment, so that proxies
	// and clients keep it open and a dead client is noticed.
	KeepAlive time.Duration
	// Answers is how long the last answers may take when sessions are closed.
	Answers time.Duration
}

func defaultLimits() Limits {
	return Limits{Body: 8 * time.Second, Room: budget.Patience, Write: 30 * time.Second, KeepAlive: 25 * time.Second, Answers: time.Second}
}

// largeEvent is the size from which an answer goes out as a JSON body, which
// is a client's to bound, rather than as an event: the Python SDK takes events
// of 1 MiB at most.
const largeEvent = 512 << 10

// writeChunk is how much is written under one deadline, so that a slow client
// is told from one that does not read.
const writeChunk = 256 << 10

// fewBytes cost less to copy than to write in pieces.
const fewBytes = 16 << 10

// answerAMoment is about how many bytes of an answer can be made and written in a moment.
const answerAMoment = 2 << 20

// What stands around a message that is an event. Nobody changes it.
var (
	eventHead = []byte("event: message\ndata: ")
	eventEnd  = []byte("\n\n")
)

// event makes an event of a message. Of one that is large no part is copied: some answers
// share them.
func event(message wire.Parts) wire.Parts { return eventAs("", message) }

// eventAs makes an event with an id; "" for none.
func eventAs(id string, message wire.Parts) wire.Parts {
	message = slices.Concat(wire.Parts{eventHead}, message, wire.Parts{eventEnd})
	if id != "" {
		message = slices.Insert(message, 0, []byte("id: "+id+"\n"))
	}
	if message.Size() <= fewBytes {
		return wire.Parts{message.Join()}
	}
	return message
}

// response is the front's view of a client: each write has a deadline, so that
// one that does not read cannot hold a handler for ever (SPEC G7).
type response struct {
	w       http.ResponseWriter
	control *http.ResponseController
	limits  Limits
	header  http.Header   // what the handler sets; goes out with the status
	telling chan struct{} // holds a token while an event is being sent
	opened  bool          // it begins a session; the handler's own
	guarded bool          // Front.guarded sees to the request's turn; the handler's own
	unread  atomic.Bool   // the request has a large body, of which nothing was read
	place   *turns.Brief  // of Front.Working; nil for none
	small   smallAnswer

	mu      sync.Mutex // serialises writes; guards the fields that follow
	resumed resumable
	status  int
	timer   *time.Timer // set while the stream is kept alive
	late    bool        // it was open for unreadAfter before its answer
	before  http.Header // with what the stream may begin before the handler says
	early   bool        // it began so
	done    bool        // the handler has returned, or has sent its answer
	works   time.Time   // until when the place counts for what is written
	written int         // bytes of messages that the place does not count for yet

	extended time.Time // when a write got its time last
}

func newResponse(w http.ResponseWriter, l Limits) *response {
	r := &response{w: w, control: http.NewResponseController(w), limits: l, header: http.Header{}, telling: make(chan struct{}, 1)}
	r.extend() // for a 100 Continue: the deadline of the connection's last response is still set
	return r
}

// Unwrap serves http.ResponseController.
func (r *response) Unwrap() http.ResponseWriter { return r.w }

// Header returns what the handler sets. It is the handler's own, so that a
// stream can begin in the meantime.
func (r *response) Header() http.Header { return r.header }

// extend gives the next write its time, or nearly so.
func (r *response) extend() {
	const nearly = 64 // of which a part may be missing, since to set it costs as much as a write to memory
	now := time.Now()
	if now.Sub(r.extended) < r.limits.Write/nearly || r.small.refused.Load() {
		return
	}
	r.extended = now
	_ = r.control.SetWriteDeadline(now.Add(r.limits.Write)) // a recorder in a test has none
}

// WriteHeader sends the status.
func (r *response) WriteHeader(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginLocked(status, r.header)
}

func (r *response) beginLocked(status int, header http.Header) {
	if r.status != 0 {
		return // a stream that began early, or a handler's second thought
	}
	r.status = status
	maps.Copy(r.w.Header(), header)
	if r.unread.Load() {
		r.w.Header().Set("Connection", "close") // else the server reads it, in nobody's turn
	}
	r.extend()
	r.w.WriteHeader(status)
}

// Write writes p, chunk by chunk.
func (r *response) Write(p []byte) (int, error) {
	if err := r.writeAll(wire.Parts{p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// writeAll writes a message with nothing between its parts.
func (r *response) writeAll(message wire.Parts) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginLocked(http.StatusOK, r.header)
	if r.early && !isEventStream(r.header) { // too late for another kind of answer
		message = event(wire.Parts{bytes.TrimSpace(message.Join())})
	}
	return r.writeAllLocked(message)
}

func (r *response) writeAllLocked(message wire.Parts) error {
	r.written += message.Size()
	if moments := r.written / answerAMoment; moments > 0 && r.place != nil {
		r.written %= answerAMoment
		if until := r.place.Longer(moments); until.After(r.works) {
			r.works = until
		}
	}
	for _, part := range message {
		if err := r.writeLocked(part); err != nil {
			return err
		}
	}
	return nil
}

// answer writes the one message of a response: as an event, or as JSON when it
// is large and the stream has not begun. With now, nothing of it waits for the end of the handler.
func (r *response) answer(message wire.Parts, now bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	size := message.Size()
	if held := r.resumed.stream; held != nil {
		event, own := held.Add(message, true)
		if message, size = event, event.Size(); !own || r.resumed.broken {
			r.done = true
			return nil
		}
	} else if r.status == 0 && size >= largeEvent {
		r.header.Set("Content-Type", "application/json")
	} else {
		r.header["Content-Type"], r.header["Cache-Control"] = eventStream, noCache
		message = slices.Concat(wire.Parts{eventHead}, message, wire.Parts{eventEnd})
		size = message.Size()
	}
	if r.status == 0 {
		r.header.Set("Content-Length", strconv.Itoa(size))
	}
	r.beginLocked(http.StatusOK, r.header)
	r.done = true // no comment may follow
	if size <= fewBytes {
		message = wire.Parts{message.Join()}
	}
	if size <= mostSmall {
		r.small.begin(size)
	}
	defer r.small.end()
	if r.late {
		r.timer.Reset(unreadAfter)
	}
	if err := r.writeAllLocked(message); err != nil || !now {
		return err
	}
	return r.control.Flush()
}

// beginStream sends the head of an event stream, and its first event; nil for none.
func (r *response) beginStream(first []byte) error {
	r.mu.Lock()
	r.header["Content-Type"], r.header["Cache-Control"] = eventStream, noCache
	r.mu.Unlock()
	return r.writeNow(wire.Parts{first})
}

// Tell implements client.Outlet: it sends an event, of which there may be others.
func (r *response) Tell(ctx context.Context, message json.RawMessage) error {
	return r.event(ctx, wire.Parts{message})
}

// event sends a message as an event, of which there may be others.
func (r *response) event(ctx context.Context, message wire.Parts) error {
	return r.eventAs(ctx, "", message)
}

// eventAs is event with an id; "" for that of a stream that is held, or none.
func (r *response) eventAs(ctx context.Context, id string, message wire.Parts) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case r.telling <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	return client.SendWithin(ctx, func() error {
		defer func() { <-r.telling }()
		return r.eventNow(id, message)
	})
}

func (r *response) eventNow(id string, message wire.Parts) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.done {
		return client.ErrHungUp
	}
	r.header["Content-Type"], r.header["Cache-Control"] = eventStream, noCache
	r.beginLocked(http.StatusOK, r.header)
	if r.heldLocked() {
		r.passLocked(message)
		return nil
	}
	if err := r.writeAllLocked(eventAs(id, message)); err != nil {
		return err
	}
	r.extend()
	return r.control.Flush()
}

func (r *response) writeLocked(p []byte) error {
	written := 0
	for {
		chunk := p[written:min(len(p), written+writeChunk)]
		r.extend()
		n, err := r.w.Write(chunk)
		written += n
		if err != nil || written == len(p) {
			return err
		}
	}
}

// worksFor returns for how long the place still counts for what was written.
func (r *response) worksFor() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.works.IsZero() {
		return 0
	}
	return time.Until(r.works)
}

// FlushError sends what is written so far.
func (r *response) FlushError() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.beginLocked(http.StatusOK, r.header)
	r.extend()
	return r.control.Flush()
}

// Flush serves callers that know http.Flusher only.
func (r *response) Flush() { _ = r.FlushError() }

// begun reports whether anything was sent.
func (r *response) begun() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status != 0
}

// keepAlive sends a comment whenever the stream was open for another while.
// With early, the stream begins so if the handler has sent nothing by then:
// clients give up on a response without headers after some minutes. It ends
// with its handler.
func (r *response) keepAlive(early bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if early {
		r.before = maps.Clone(r.header) // whose values nobody changes
		r.before["Content-Type"], r.before["Cache-Control"] = eventStream, noCache
	}
	r.timer = r.lookAgain(min(unreadAfter, r.limits.KeepAlive))
}

func (r *response) lookAgain(d time.Duration) *time.Timer { return time.AfterFunc(d, r.overdue) }

// overdue is called when the response was open for unreadAfter, and whenever a comment is due.
func (r *response) overdue() {
	switch {
	case r.small.waits():
		r.countUnread()
		return
	case !r.mu.TryLock(): // something else is being written
		r.lookAgain(unreadAfter)
		return
	}
	defer r.mu.Unlock()
	switch {
	case r.done:
	case !r.late:
		r.late = true
		r.timer.Reset(r.limits.KeepAlive - min(unreadAfter, r.limits.KeepAlive))
	default:
		r.commentLocked()
	}
}

func (r *response) commentLocked() {
	r.timer.Reset(r.limits.KeepAlive)
	if r.status == 0 && r.before != nil {
		r.early = true
		r.beginLocked(http.StatusOK, r.before)
	}
	if r.status != http.StatusOK || !isEventStream(r.w.Header()) {
		return // not a stream yet, or none at all
	}
	comment := wire.Parts{[]byte(": keep-alive\n\n")}
	if r.resumed.stream == nil && r.resumed.session != nil && r.resumed.session.Primed() && r.heldLocked() {
		comment = r.resumed.stream.Prime()
	}
	if err := r.writeAllLocked(comment); err == nil {
		_ = r.control.Flush() // the next write will say the same
	}
}

// What headers a stream has. Nobody changes them.
var (
	eventStream = []string{"text/event-stream"}
	noCache     = []string{"no-cache, no-transform"}
)

func isEventStream(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

// finish marks the handler's end: nothing is written from now on, but for what
// the server holds back.
func (r *response) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = true
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.resumed.stream != nil {
		r.resumed.stream.End()
	}
	r.beginLocked(http.StatusOK, r.header)
	r.extend()
}
