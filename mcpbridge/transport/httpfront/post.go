package httpfront

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/mcpbridge"
	"github.com/orla-project/orla/mcpbridge/budget"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// serveMCP serves Streamable HTTP in every era.
func (h *Front) serveMCP(w http.ResponseWriter, r *http.Request) {
	if to := h.home(r); to != "" {
		h.passInTurn(w, r, to)
		return
	}
	switch r.Method {
	case http.MethodPost:
		h.servePost(under(w), r)
	case http.MethodGet, http.MethodDelete:
		if header(r, wire.SessionHeader) == "" {
			refuse(w, http.StatusBadRequest, r.Method+" needs an Mcp-Session-Id header, which MCP clients send; for browsers there is the command orla console")
			return
		}
		if r.Method == http.MethodDelete && h.endEarlier(r) {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		from := h.senderOf(r)
		u := from.own
		switch {
		case u == nil:
			h.over(w, from)
		case r.Method == http.MethodDelete:
			h.endSessions(h.sessions.removeOne(u))
			w.WriteHeader(http.StatusNoContent)
		default:
			h.serveStream(under(w), r, u, client.OwnerOf(from.subject, "", from.host)) //nolint:contextcheck // r has it
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "POST sends a message, GET opens a session's stream, DELETE ends a session")
	}
}

// serveStream serves a GET: a stream of notifications, for as long as the client listens.
func (h *Front) serveStream(out *response, r *http.Request, u *usage, as turns.Owner) {
	if _, events := wire.Accepts(r.Header["Accept"]); !events {
		refuse(out, http.StatusBadRequest, "Accept must contain 'text/event-stream' for GET requests")
		return
	}
	event := header(r, "Last-Event-Id")
	if event != "" && !client.IsNews(event) {
		h.goOn(out, r, u, event)
		return
	}
	ctx, leave, ok := h.openNews(r, u, event)
	if !ok {
		refuse(out, http.StatusConflict, "the session already has an event stream")
		return
	}
	defer leave()
	h.headersRead(r, true)
	out.Header().Set("X-Accel-Buffering", "no")
	if out.beginStream(u.firstNews()) != nil {
		return // the client has left
	}
	out.keepAlive(false)
	h.bridge.PassNews(ctx, u.Inbox, u.Done(), news{out, u.Inbox}, as)
}

// servePost serves a POST: one message, or a batch in the versions that have batches.
func (h *Front) servePost(out *response, r *http.Request) {
	from := h.senderOf(r)
	body, account, ok := h.readBody(out, r, from)
	batch := wire.IsBatch(body)
	if batch && account == nil {
		account = budget.NewAccount(h.bridge.Requests(), from.owner)
	}
	defer account.End()
	if !ok || batch && !h.waits(out, r, account, body) {
		return
	}
	place, err := h.workOn(r.Context(), from.owner, body)
	if err != nil {
		return // the client has left
	}
	out.place = place
	defer h.worked(r, from.owner, place, out)
	out.Header().Set("X-Accel-Buffering", "no")
	data := wire.Trimmed(body)
	if !wire.Valid(data) {
		writeError(out, http.StatusBadRequest, nil, jsonrpc.CodeParseError, "the body is not valid JSON in UTF-8 of at most 500 levels")
		return
	}
	if wrong := checkPost(r); wrong != "" {
		writeError(out, http.StatusBadRequest, wire.IDOf(data), jsonrpc.CodeInvalidRequest, wrong)
		return
	}
	if batch {
		h.postBatch(out, r, from, data)
		return
	}
	m, refused := wire.ReadMessage(data)
	if refused != nil {
		writeRefusal(out, http.StatusBadRequest, m.ID, refused)
		return
	}
	if to := h.namedBy(r, m); to != "" {
		h.pass(out, r, to, data)
		return
	}
	if m.Method != wire.MethodListen {
		h.calls.Add(1)
		defer h.calls.Add(-1)
	}
	h.post(out, r, from, m) //nolint:contextcheck // r has it
}

// checkPost returns what is wrong with the headers of a POST; "" for nothing.
func checkPost(r *http.Request) string {
	version := header(r, wire.VersionHeader)
	plain, events := wire.Accepts(r.Header["Accept"])
	switch {
	case !plain || !events:
		return "Accept must contain both 'application/json' and 'text/event-stream'"
	case len(r.Header["Last-Event-Id"]) > 0:
		return "can't send Last-Event-ID for POST request"
	case version != "" && version < wire.FirstStateless && !wire.WithSessions(version):
		return "Bad Request: Unsupported protocol version (supported versions: " + strings.Join(wire.Versions, ",") + ")"
	}
	return ""
}

// post serves one message.
func (h *Front) post(out *response, r *http.Request, from sender, m *wire.Message) {
	newest := header(r, wire.VersionHeader) >= wire.FirstStateless
	if !mcpbridge.Knows(m.Method) && m.Asks() {
		h.refuseRequest(out, r, m.ID, wire.MethodNotFound(m.Method))
		return
	}
	if refused := h.checkVersion(r, m, newest); refused != nil {
		writeRefusal(out, http.StatusBadRequest, m.ID, refused)
		return
	}
	by := originOf(r, from.subject, from.host, client.StreamableHTTP)
	var s *client.Session
	switch {
	case newest: // it has no sessions
	case from.session == "" && m.Method == wire.MethodInitialize && m.Asks():
		h.begin(out, r, from, m)
		return
	case from.session == "":
		by.Version = cmp.Or(by.Version, wire.VersionWithout)
	case from.own == nil:
		h.over(out, from)
		return
	default:
		h.sessions.enter(from.own)
		defer h.leave(from.own)
		s, by.Session = from.own.Session, from.session
	}
	if s != nil || from.own == nil {
		by.As = from.owner
	}
	if !m.Asks() {
		hear(s, m)
		out.WriteHeader(http.StatusAccepted)
		return
	}
	asked, refused := h.bridge.NewRequest(m, by, s, out)
	if refused == nil && asked.Stateless() != newest {
		refused = wire.Mismatch("%s header does not match request %s", wire.VersionHeader, mcp.MetaKeyProtocolVersion)
	}
	if refused == nil {
		refused = h.start(r, s, asked)
	}
	switch {
	case refused == errSessionOver:
		h.over(out, from)
		return
	case refused != nil:
		h.refuseRequest(out, r, m.ID, refused)
		return
	}
	open := s != nil // the id is in use
	free := func() {
		if open {
			open = false
			s.Remove(asked.ID)
		}
	}
	defer free()
	if m.Method == wire.MethodListen {
		stream, leave, full := h.admitStream(r)
		if full != nil {
			asked.Stop()
			full.refuse(out, m.ID)
			return
		}
		defer leave()
		asked.Begin(stream.Context())
	}
	h.headersRead(r, m.Method == wire.MethodListen)
	out.small.room, out.small.owner = h.bridge.Answers(), by.Owner()
	if s != nil {
		out.resumed = resumable{session: from.own, id: asked.ID}
	}
	out.keepAlive(true)
	h.bridge.Exchange(asked, func(response wire.Parts, code int64, release func()) {
		defer release()
		if status := wire.StatusOf(code); status != 0 && newest && !out.begun() {
			writeJSON(out, status, string(response.Join()))
			return
		}
		free() // the client may use the id again as soon as it has the answer
		if s != nil && code == 0 {
			h.keep(s, m)
		}
		// The client of the only call need not wait until the call is logged. Where there are more
		// calls, a flush for each would cost more than it saves.
		_ = out.answer(response, h.calls.One()) // the client's leaving is its own business
	})
}

// checkVersion checks the protocol version in the headers and in the message.
func (h *Front) checkVersion(r *http.Request, m *wire.Message, newest bool) *jsonrpc.Error {
	if refused := wire.CheckVersion(r.Header, m, newest); refused != nil || !newest {
		return refused
	}
	name, refused := wire.CheckNames(r.Header, m)
	if refused != nil || m.Method != wire.MethodCall || m.Answers() {
		return refused
	}
	return h.bridge.HeaderParams(name, cmp.Or(subject(r), anonymous), groupsOf(r)).Check(r.Header, m.Params.Arguments)
}

// hear takes a message that needs no answer. s is nil without a session; then there is nothing that it could be about.
func hear(s *client.Session, m *wire.Message) {
	switch {
	case s == nil:
	case m.Answers():
		s.Questions.Answer(m)
	default:
		wire.Notified(m, s.Cancel)
	}
}

// start begins a request. It ends with its POST, or, in a session, when it is cancelled: a client
// that disconnects has not cancelled its request. An error refuses it.
func (h *Front) start(r *http.Request, s *client.Session, asked *mcpbridge.Request) *jsonrpc.Error {
	if s == nil {
		asked.Begin(r.Context())
		return nil
	}
	asked.Begin(context.WithoutCancel(r.Context()))
	switch taken, ended := s.Add(asked.ID, asked.Cancel); {
	case taken:
		asked.Stop()
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "a request with this id is being answered"}
	case ended:
		asked.Stop()
		return errSessionOver
	}
	return nil
}

// refuseRequest answers a request that is not begun.
func (h *Front) refuseRequest(out *response, r *http.Request, id json.RawMessage, refused *jsonrpc.Error) {
	status := http.StatusBadRequest
	if refused.Code == jsonrpc.CodeMethodNotFound {
		status = http.StatusOK // as any error of the protocol in the older eras
		if header(r, wire.VersionHeader) >= wire.FirstStateless {
			status = http.StatusNotFound
		}
	}
	writeRefusal(out, status, id, refused)
}

// postBatch serves a batch. Each answer is an event.
func (h *Front) postBatch(out *response, r *http.Request, from sender, data []byte) {
	version := header(r, wire.VersionHeader)
	if version > wire.LastWithBatches {
		writeError(out, http.StatusBadRequest, nil, jsonrpc.CodeInvalidRequest, "JSON-RPC batching is not supported in 2025-06-18 and later (request version: "+version+")")
		return
	}
	all, refusals, wrong := wire.ReadBatch(data)
	if wrong != nil {
		status := http.StatusBadRequest
		if len(data) > 0 && wire.OverBatch(data) != "" {
			status = http.StatusRequestEntityTooLarge
		}
		writeRefusal(out, status, nil, wrong)
		return
	}
	by := originOf(r, from.subject, from.host, client.StreamableHTTP)
	by.Version = cmp.Or(by.Version, wire.VersionWithout)
	var s *client.Session
	switch {
	case from.session != "" && from.own == nil:
		h.over(out, from)
		return
	case from.own != nil:
		h.sessions.enter(from.own)
		defer h.leave(from.own)
		s, by.Session = from.own.Session, from.session
	}
	h.headersRead(r, false)
	h.calls.Add(1)
	defer h.calls.Add(-1)
	var answers sync.WaitGroup
	defer answers.Wait()
	some := false
	for i, m := range all {
		refused := refusals[i]
		if refused == nil && !m.Asks() {
			hear(s, m)
			continue
		}
		if !some {
			some = true
			out.keepAlive(true)
		}
		var asked *mcpbridge.Request
		switch {
		case refused != nil:
		case m.Method == wire.MethodInitialize:
			refused = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "an initialize cannot be part of a batch"}
		default:
			asked, refused = h.bridge.NewRequest(m, by, s, out)
			switch {
			case refused != nil:
			case asked.Stateless(): // which has no batches
				refused = wire.Unsupported(wire.FirstStateless, wire.Versions[3:])
			default:
				refused = h.start(r, s, asked)
			}
		}
		if refused != nil {
			_ = out.event(r.Context(), wire.Parts{wire.ErrorOf(m.ID, refused)}) // the client's leaving is its own business
			continue
		}
		answers.Go(func() { //nolint:contextcheck // asked has its own, since in a session it outlives its POST
			defer recovered.To(h.log, "answer a request of a batch", nil)
			if s != nil {
				defer s.Remove(asked.ID)
			}
			h.bridge.Exchange(asked, func(response wire.Parts, code int64, release func()) {
				defer release()
				if s != nil && code == 0 {
					h.keep(s, m)
				}
				_ = out.event(r.Context(), response)
			})
		})
	}
	if !some {
		out.WriteHeader(http.StatusAccepted)
	}
}

// errSessionOver refuses a request of a session that has just ended.
var errSessionOver = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the session has ended"}

func writeRefusal(w http.ResponseWriter, status int, id json.RawMessage, refused *jsonrpc.Error) {
	writeJSON(w, status, string(wire.ErrorOf(id, refused)))
}
