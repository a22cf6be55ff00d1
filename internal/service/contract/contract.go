// Package contract implements the tool contract v1 (SPEC-TOOLS 2): the request to a service, and the
// meaning of its answer. It does no I/O: each kind of tool has its own transport.
//
//	Tool ── Exchange ──┬─ Request ─► service
//	                   └─ Answer, Raw, Decode ◄─ service
//
// Its invariant: an answer is a success only if all of it was understood. No secret of the attempt
// is in a result or a reason: secrets are removed from an answer before anything is made from it.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/manifest"
)

// Version is the version of the contract in VersionHeader.
const Version = "v1"

// VersionHeader is the header with the version of a request's contract.
const VersionHeader = "X-Tool-Contract-Version"

// Tool is a tool that is a service. It may be used from any goroutine.
type Tool struct {
	name      string
	namespace string
	output    *schema.Schema // nil if the tool has no output schema
}

// For returns the Tool for a manifest. The error says what is wrong with its output schema.
func For(t manifest.Tool) (*Tool, error) {
	tool := &Tool{name: t.Name}
	if t.Resource != nil {
		tool.namespace = t.Resource.Namespace
	}
	if t.OutputSchema != nil {
		output, err := schema.Compile(t.OutputSchema)
		if err != nil {
			return nil, fmt.Errorf("%s: output_schema: %w", t.Source, err)
		}
		tool.output = output
	}
	return tool, nil
}

// Credentials are the credentials of an attempt. internal/service/auth implements it.
type Credentials interface {
	// Contract returns the auth of the envelope; "" for none.
	Contract() (typ, token string)
	// Redact removes every secret from a text.
	Redact(text string) string
	// RedactBody is Redact for an answer. It returns body itself if it contains no secret.
	RedactBody(body []byte) []byte
}

// Exchange is one attempt of a call: the request and its answers.
type Exchange struct {
	ctx         context.Context // of the attempt
	tool        *Tool
	requestID   string
	call        peer.Call
	trace       trace.Context
	credentials Credentials
}

// Exchange starts an attempt of a call, whose id is in ctx.
func (t *Tool) Exchange(ctx context.Context, call peer.Call, c Credentials) *Exchange {
	return &Exchange{ctx: ctx, tool: t, requestID: callid.From(ctx), call: call, trace: trace.From(ctx), credentials: c}
}

// RequestID identifies the call to the service. It is the same in every attempt, and cannot be
// guessed.
func (x *Exchange) RequestID() string { return x.requestID }

// Request is the envelope of SPEC-TOOLS 2.1. Its parameters are the arguments as the client sent
// them; numbers keep all their digits.
type Request struct {
	RequestID  string          `json:"request_id"`
	Tool       string          `json:"tool"`
	Action     string          `json:"action"`
	Parameters json.RawMessage `json:"parameters"`
	Auth       *Auth           `json:"auth,omitempty"` // nil for none
	Context    Context         `json:"context"`
}

// Auth has the credentials of a call.
type Auth struct {
	Type  string `json:"type"`
	Token string `json:"token"`
}

// Context says what a call is part of. Task is "" if the client has no session and names no task;
// the member is always sent, as the contract requires.
type Context struct {
	Task      string `json:"task"`
	Agent     string `json:"agent"`
	Attempt   int    `json:"attempt"`
	Namespace string `json:"namespace,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
	SpanID    string `json:"span_id,omitempty"`
}

// Request returns the attempt's envelope.
func (x *Exchange) Request() Request {
	r := Request{
		RequestID:  x.requestID,
		Tool:       x.tool.name,
		Action:     "invoke",
		Parameters: x.Arguments(),
		Context: Context{
			Task: x.call.Task, Agent: x.call.Caller, Attempt: max(x.call.Attempt, 1),
			Namespace: x.tool.namespace, TraceID: x.trace.TraceID(), SpanID: x.trace.SpanID(),
		},
	}
	if typ, token := x.credentials.Contract(); typ != "" {
		r.Auth = &Auth{Type: typ, Token: token}
	}
	return r
}

// JSON returns the envelope to send. It contains the token.
func (r Request) JSON() []byte { return encoded(r) }

// encoded returns a request as JSON, with the arguments unchanged.
func encoded(request any) []byte {
	out, err := rawjson.Encode(request)
	if err != nil {
		panic(err) // arguments are valid JSON, and everything else is strings
	}
	return out
}

// Arguments returns those of the call; {} if there are none.
func (x *Exchange) Arguments() json.RawMessage {
	args := bytes.TrimSpace(x.call.Args)
	if len(args) == 0 || string(args) == "null" {
		return json.RawMessage("{}")
	}
	return args
}
