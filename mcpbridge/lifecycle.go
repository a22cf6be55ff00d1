package mcpbridge

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/mcpbridge/client"
	"github.com/orla-project/orla/mcpbridge/wire"
)

// serve answers a request with the JSON of a result, or with an error.
type serve func(b *Bridge, ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error)

// era says in which eras of the protocol a method exists.
type era int

const (
	anyEra     era = iota
	stateful       // only in those with sessions
	newestOnly     // only in the stateless one
)

// method is how a method is answered.
type method struct {
	serve serve // nil for a notification
	era   era
	bare  bool // params may be missing
	noted bool // it has a line in the audit log, if there is one; tools/call has another one
}

// methods are all requests and notifications of clients.
var methods = map[string]method{
	wire.MethodInitialize: {serve: (*Bridge).initialize, era: stateful},
	wire.MethodPing:       {serve: (*Bridge).ping, era: stateful, bare: true},
	wire.MethodDiscover:   {serve: (*Bridge).discover, era: newestOnly, bare: true},

	wire.MethodCall:  {serve: (*Bridge).call},
	wire.MethodList:  {serve: list("tools", func(l *listed, after string) (wire.Parts, string, int) { return l.tools.Page(after) }), bare: true},
	"resources/list": {serve: list("resources", func(l *listed, after string) (wire.Parts, string, int) { return l.resources.Page(after) }), bare: true},
	"resources/templates/list": {serve: list("resourceTemplates", func(l *listed, after string) (wire.Parts, string, int) {
		return l.templates.Page(after)
	}), bare: true},
	"prompts/list": {serve: list("prompts", func(l *listed, after string) (wire.Parts, string, int) { return l.prompts.Page(after) }), bare: true},

	wire.MethodRead:      {serve: (*Bridge).read, noted: true},
	wire.MethodGetPrompt: {serve: (*Bridge).get, noted: true},
	wire.MethodComplete:  {serve: (*Bridge).complete, noted: true},

	wire.MethodSetLevel:    {serve: (*Bridge).setLevel, era: stateful},
	wire.MethodSubscribe:   {serve: (*Bridge).subscribe, era: stateful, noted: true},
	wire.MethodUnsubscribe: {serve: (*Bridge).unsubscribe, era: stateful},
	wire.MethodListen:      {serve: (*Bridge).listen, era: newestOnly, noted: true},

	wire.MethodCancelled:               {bare: true},
	"notifications/initialized":        {bare: true},
	wire.MethodProgress:                {},
	"notifications/roots/list_changed": {bare: true},
}

// capabilities are the server's. They do not depend on what there is: tools and resources may
// come later.
var capabilities = json.RawMessage(`{"completions":{},"logging":{},"prompts":{"listChanged":true},` +
	`"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}}`)

// initialize begins a session.
func (b *Bridge) initialize(_ context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	says, ok := wire.ReadInitialize(r.Params.Raw)
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	}
	if r.session == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "an initialize cannot be part of a batch"}
	}
	says.Task = client.SessionTask(r.session.ID)
	if !r.session.Introduce(says) {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: `duplicate "initialize" received`}
	}
	b.audience.join(r.session.Inbox)
	b.leftMeanwhile(r.session)
	version := cmp.Or(says.Version, wire.LastWithSessions)
	return wire.Parts{[]byte(`{"capabilities":`), capabilities, []byte(`,"protocolVersion":"` + version + `","serverInfo":`), b.selfJSON, wire.Closing}, nil
}

// EndSession ends a session, with its requests, questions and subscriptions. Peers are told
// soon after.
func (b *Bridge) EndSession(s *client.Session) {
	if !s.End() {
		return
	}
	s.Questions.Close("the session has ended, and so the client cannot answer")
	b.left(s.Inbox)
	b.verbosity.leave(s.LoggedFrom())
}

// leftMeanwhile removes the subscriptions of a session that has ended while one was added.
func (b *Bridge) leftMeanwhile(s *client.Session) {
	if s.Ended() {
		b.left(s.Inbox)
	}
}

func (b *Bridge) ping(context.Context, *Request) (wire.Parts, *jsonrpc.Error) {
	return wire.Parts{[]byte("{}")}, nil
}

// discover answers a server/discover.
func (b *Bridge) discover(context.Context, *Request) (wire.Parts, *jsonrpc.Error) {
	return wire.Parts{
		[]byte(`{"resultType":"complete","_meta":{"` + mcp.MetaKeyServerInfo + `":`), b.selfJSON,
		[]byte(`},"supportedVersions":`), rawjson.Must(wire.Versions), []byte(`,"capabilities":`), capabilities, []byte(`,"ttlMs":0,"cacheScope":"private"}`),
	}, nil
}

// setLevel answers a logging/setLevel.
func (b *Bridge) setLevel(ctx context.Context, r *Request) (wire.Parts, *jsonrpc.Error) {
	level, ok := wire.TextOf(rawjson.Get(r.Params.Raw, "level"))
	if !ok {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wire.NotShaped}
	}
	if r.session != nil && slices.Contains(wire.Levels, level) {
		b.wantsLevel(ctx, r.from.As, func() { b.verbosity.set(r.session, level) })
	}
	return wire.Parts{[]byte("{}")}, nil
}
