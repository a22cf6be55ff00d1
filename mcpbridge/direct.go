package mcpbridge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/supervisor"
)

// traits is what has to be known of a tool to answer a call of it.
type traits struct {
	structured bool // clients expect a structured answer
	headers    bool // some arguments stand in HTTP headers as well, which the SDK compares
}

func traitsOf(t *mcp.Tool) traits {
	raw, err := json.Marshal(t.InputSchema)
	return traits{
		structured: t.OutputSchema != nil,
		headers:    err != nil || bytes.Contains(raw, []byte("x-mcp-header")),
	}
}

// listedTraits returns the traits of a listed tool.
func (b *Bridge) listedTraits(name string) (traits, bool) {
	t, ok := (*b.traits.Load())[name]
	return t, ok
}

// answerable reports whether the bridge can answer p by itself: its tool is
// listed and has nothing to say to this client meanwhile, or the page of the list
// is there, which p is given then.
func (b *Bridge) answerable(p *plainCall, from client, session string) (tool traits, ok bool) {
	c := b.catalog.Catalog()
	if p.method == methodList {
		ready := b.pages.Load()
		p.page, ok = ready.find(p.cursor)
		return traits{}, ok && ready.of == c && c.Known()
	}
	if c.Talks[p.name] && (from.listens || p.meta == nil && b.verbosity.wanted(session)) {
		return traits{}, false
	}
	return b.listedTraits(p.name)
}

// direct answers a plain call without the SDK: the response as JSON, the code
// of an error, and what record is to write, nil for nothing.
func (b *Bridge) direct(ctx context.Context, p plainCall, from origin) (response parts, code int64, made *call) {
	defer func() { // as the SDK's way has it; see contained
		if why := recover(); why != nil {
			b.log.Error("panic in a request", "method", p.method, "panic", fmt.Sprint(why), "stack", string(debug.Stack()))
			response, code, made = parts{errorOf(p.id, internalError())}, jsonrpc.CodeInternalError, nil
		}
	}()
	if p.method == methodList {
		return b.directList(p), 0, nil
	}
	if own := parentInRaw(p.trace); !own.IsZero() {
		from.parent = own
	}
	asked := supervisor.Call{Tool: p.name, Args: p.args, Meta: p.trace, Caller: from.caller}
	var who *deaf
	if b.catalog.Catalog().Talks[p.name] {
		who = &deaf{session: from.client(), line: from.line(), newest: p.meta != nil}
		asked.Client = who
	}
	answer, made, rpcErr := b.answerCall(ctx, asked, from)
	if who != nil && p.meta != nil && (rpcErr != nil || answer.failed()) {
		rpcErr = cmp.Or(who.missing(), rpcErr)
	}
	if rpcErr != nil {
		return parts{errorOf(p.id, rpcErr)}, rpcErr.Code, made
	}
	if answer.passed != nil {
		answer.passed.sign(b.states, asking{from.client(), p.method, p.name, p.args})
	}
	result, err := b.encoded(answer, p.meta != nil)
	if err != nil { // bound has seen to it that it can be encoded
		b.log.Error("encode an answer", "tool", p.name, "err", err)
		return parts{errorOf(p.id, internalError())}, jsonrpc.CodeInternalError, made
	}
	response = append(make(parts, 0, len(result)+4), responseHead, p.id, resultKey)
	return append(append(response, result...), closing), 0, made
}

// What stands around the id and the result of a response. Nobody changes it.
var (
	responseHead = []byte(`{"jsonrpc":"2.0","id":`)
	resultKey    = []byte(`,"result":`)
	closing      = []byte("}")
)

// encoded is an answer as a result, in the stateless era or another.
func (b *Bridge) encoded(a answer, newest bool) (parts, error) {
	var self json.RawMessage
	if newest {
		self = b.selfJSON
	}
	if a.passed != nil {
		return a.passed.parts(self), nil
	}
	if result, ok := encode(a.result, self); ok {
		return parts{result}, nil
	}
	if !newest {
		result, err := a.result.MarshalJSON()
		return parts{result}, err
	}
	if a.result.Meta == nil {
		a.result.Meta = mcp.Meta{}
	}
	a.result.Meta[mcp.MetaKeyServerInfo] = b.self
	result, err := a.result.MarshalJSON()
	if err != nil {
		return nil, err
	}
	// What the stateless era has in every result; the SDK keeps the field to itself.
	return parts{result[:len(result)-1], []byte(`,"resultType":"complete"}`)}, nil
}

// directList answers a plain tools/list with its page.
func (b *Bridge) directList(p plainCall) parts {
	out := parts{[]byte(`{"jsonrpc":"2.0","id":`), p.id, []byte(`,"result":{`)}
	if p.meta != nil {
		out = append(out, []byte(`"resultType":"complete","_meta":{"`+mcp.MetaKeyServerInfo+`":`), b.selfJSON, []byte("},"))
	}
	if p.page.next != "" {
		out = append(out, []byte(`"nextCursor":`), rawjson.Quote(p.page.next), []byte(","))
	}
	return append(out, []byte(`"ttlMs":0,"cacheScope":"private","tools":`), p.page.tools, []byte("}}"))
}

// plainPost returns the plain call that a POST makes, with the session it
// belongs to, if everything about the request is usual.
func (h *HTTP) plainPost(r *http.Request, from sender, body []byte) (p plainCall, ok bool) {
	p, ok = parsePlain(body)
	if !ok || len(r.Header["Last-Event-Id"]) > 0 || !acceptsBoth(r.Header["Accept"]) {
		return plainCall{}, false
	}
	var who client
	version := header(r, versionHeader)
	switch {
	case version == firstStateless && p.meta != nil:
		who, ok = h.bridge.metas.find(from.metas(), p.meta)
	case (version == "" || withSessions[version]) && p.meta == nil:
		who, ok = from.says, from.own
	default:
		ok = false
	}
	if !ok {
		return plainCall{}, false
	}
	tool, ok := h.bridge.answerable(&p, who, from.session)
	if ok && version == firstStateless {
		ok = header(r, methodHeader) == p.method && !tool.headers && (p.method == methodList || header(r, nameHeader) == p.name)
	}
	p.version, p.task = cmp.Or(version, who.version), who.task
	return p, ok
}

// session is the id of the session that a plain POST belongs to; "" in the
// stateless era, which has none.
func (p plainCall) session(from sender) string {
	if p.meta != nil {
		return ""
	}
	return from.session
}

// withSessions are the protocol versions with sessions.
var withSessions = map[string]bool{"2024-11-05": true, "2025-03-26": true, "2025-06-18": true, "2025-11-25": true}

// acceptsBoth reports whether a client says outright that it takes JSON and events.
func acceptsBoth(values []string) bool {
	accept := strings.Join(values, ",")
	return strings.Contains(accept, "application/json") && strings.Contains(accept, "text/event-stream")
}

// answerPlain answers a plain POST with one event, or with JSON when it is large.
func (h *HTTP) answerPlain(out *response, r *http.Request, by sender, p plainCall) {
	ctx := r.Context()
	from := origin{
		caller: "anonymous", transport: StreamableHTTP, version: p.version,
		request: p.id, task: p.task, parent: parentOf(r.Header), host: by.host,
	}
	if by.subject != "" {
		from.caller, from.subject = by.subject, by.subject
	}
	if p.meta == nil {
		from.session = p.session(by)
		// In these eras a client that leaves has not cancelled: it says so.
		called, end, taken := h.sessions.begin(ctx, from.session, string(p.id))
		if taken {
			writeError(out, http.StatusBadRequest, p.id, jsonrpc.CodeInvalidRequest, "a request with this id is being answered")
			return
		}
		defer end()
		ctx = called
	}
	from.share = from.line()
	ctx, letGo := h.bridge.room.Hold(ctx, from.share)
	defer letGo()
	response, code, made := h.bridge.direct(ctx, p, from)
	h.bridge.record(ctx, made)
	if status := statusOf(code); status != 0 && p.meta != nil {
		writeJSON(out, status, string(response.join()))
		return
	}
	_ = out.answer(response) // the client's leaving is its own business
}

// statusOf is the status that the stateless era has an error of the protocol say
// as well; 0 for most, which come as any answer does.
func statusOf(code int64) int {
	switch code {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case jsonrpc.CodeInvalidParams, mcp.CodeMissingRequiredClientCapabilities:
		return http.StatusBadRequest
	}
	return 0
}

// cancelled ends the plain call that a POST cancels, and reports whether it was one.
func (h *HTTP) cancelled(from sender, body []byte) bool {
	if !bytes.Contains(body, []byte(methodCancelled)) {
		return false
	}
	return h.sessions.cancel(from.session, from.subject, cancelledID(body))
}

// cancelledID returns the id that a notification cancels, as it came; "" if
// the message is something else.
func cancelledID(raw []byte) string {
	var n struct {
		Method string `json:"method"`
		Params struct {
			RequestID json.RawMessage `json:"requestId"`
		} `json:"params"`
	}
	if json.Unmarshal(raw, &n) != nil || n.Method != methodCancelled {
		return ""
	}
	return string(n.Params.RequestID)
}
