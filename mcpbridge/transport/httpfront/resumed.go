package httpfront

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/transport/held"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// streams are those of one session.
type streams struct {
	news *newsStream   // nil while none is open
	held *held.Session // answers for which the client may come back
}

// newsStream is an open event stream of a session.
type newsStream struct {
	end  context.CancelFunc
	gone chan struct{} // closed when it has ended
}

// resumable is the answer of a request of a session while it is a stream: its events have ids and are held, so that the client
// can go on with it when its connection breaks (SPEC Q2).
type resumable struct {
	session *usage // nil for an answer that cannot be resumed
	id      json.RawMessage
	stream  *held.Stream // nil before the first event
	broken  bool         // the connection
}

// heldLocked reports whether the events of the stream are held.
func (r *response) heldLocked() bool {
	if r.resumed.stream == nil && r.resumed.session != nil {
		r.resumed.stream = r.resumed.session.held.Open(r.resumed.id, r.small.owner, r.giveUp)
	}
	return r.resumed.stream != nil
}

// passLocked adds an event to the stream that is held, and writes it if the client has not come back yet. That it cannot be written
// is not an error: the client can still come back.
func (r *response) passLocked(message wire.Parts) {
	event, own := r.resumed.stream.Add(message, false)
	if own && !r.resumed.broken {
		r.resumed.broken = r.writeAllLocked(event) != nil || r.control.Flush() != nil
	}
}

// giveUp ends what is being written, and lets nothing more be written: the connection may be dead.
func (r *response) giveUp() {
	r.small.refused.Store(true)
	_ = r.control.SetWriteDeadline(time.Now()) // a recorder in a test has none
}

// firstNews returns the event with which the event stream of a session begins, so that its client has an id; nil for an older client.
func (u *usage) firstNews() []byte {
	if !u.Primed() {
		return nil
	}
	return []byte("id: " + u.Inbox.Told() + "\ndata: \n\n")
}

// goOn serves a GET of a client that comes back for an answer.
func (h *Front) goOn(out *response, r *http.Request, u *usage, event string) {
	stream, after := u.held.Find(event)
	lost := held.Lost(event)
	switch {
	case !held.IsEvent(event):
		refuse(out, http.StatusBadRequest, "Last-Event-ID names no event of this server; open a stream without it")
		return
	case stream == nil && lost == nil, stream != nil && stream.Over(after):
		out.WriteHeader(http.StatusNoContent) // so that the client does not come back again
		return
	}
	h.sessions.enter(u)
	defer h.leave(u)
	h.headersRead(r, true)
	out.Header().Set("X-Accel-Buffering", "no")
	if stream == nil {
		_ = out.eventNow("", wire.Parts{lost}) // the client's leaving is its own business
		return
	}
	if out.beginStream(nil) != nil {
		return
	}
	out.keepAlive(false)
	_ = stream.Pass(r.Context(), u.Done(), after, held.Outlet{Write: out.writeNow, GiveUp: out.giveUp})
}

// writeNow writes and sends events that are complete.
func (r *response) writeNow(events wire.Parts) error {
	if err := r.writeAll(events); err != nil {
		return err
	}
	return r.FlushError()
}

// news sends the news of a session, with ids.
type news struct {
	out *response
	in  *client.Inbox
}

// Tell implements client.Outlet.
func (n news) Tell(ctx context.Context, message json.RawMessage) error {
	return n.out.eventAs(ctx, n.in.Told(), wire.Parts{message})
}

// openNews makes the event stream of a session the one that a request opens, until leave is called. It reports false if the session
// has one already. The client that comes back for the news after an event takes its place: the connection may be broken.
func (h *Front) openNews(r *http.Request, u *usage, event string) (ctx context.Context, leave func(), ok bool) {
	ctx, end := context.WithCancel(r.Context())
	one := &newsStream{end, make(chan struct{})}
	before, ok := h.sessions.enterStream(u, one, event != "")
	if !ok {
		end()
		return nil, nil, false
	}
	if before != nil {
		before.end()
		<-before.gone
	}
	if event != "" {
		u.Inbox.TellAfter(event)
	}
	return ctx, func() {
		end()
		close(one.gone)
		if h.sessions.leaveStream(u, one) {
			h.sessions.kept.Used(u.ID)
		}
	}, true
}
