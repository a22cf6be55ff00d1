// Package contract speaks the tool contract v1 (SPEC-TOOLS 2): what a service is
// told of a call, and what its answer means. It moves no bytes: that is for the
// kinds of tools, each over a transport of its own.
//
//	Tool ── Exchange ──┬─ Request ─► service
//	                   └─ Answer, Raw, Decode ◄─ service
//
// Its invariant: what a service says never becomes a success unless all of it
// was understood, and no secret of the attempt is in a result or a reason: it is
// taken out of an answer before anything else is made of that.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/orla-project/orla/internal/call/callid"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/schema"
	"github.com/orla-project/orla/manifest"
)

// Version is the version of the contract, as it stands in VersionHeader.
const Version = "v1"

// VersionHeader says which contract a request is of.
const VersionHeader = "X-Tool-Contract-Version"

// Tool is a tool that is a service. It may be used from any number of goroutines.
type Tool struct {
	name      string
	namespace string
	output    *schema.Schema // nil without an output schema
}

// For returns the Tool that t describes. The error says what is wrong with its
// output schema.
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

// Credentials are what an attempt is authenticated with. Those of
// internal/service/auth are.
type Credentials interface {
	// Contract gives the envelope's auth; "" for none.
	Contract() (typ, token string)
	// Redact takes every secret out of a text.
	Redact(text string) string
	// RedactBody is Redact for an answer. It returns body itself if there is none.
	RedactBody(body []byte) []byte
}

// Exchange is one attempt of a call: the request, and whatever is answered to it.
type Exchange struct {
	ctx         context.Context // of the attempt that it is a part of
	tool        *Tool
	requestID   string
	call        peer.Call
	trace       trace.Context
	credentials Credentials
}

// Exchange begins an attempt of a call, whose id is that of ctx.
func (t *Tool) Exchange(ctx context.Context, call peer.Call, c Credentials) *Exchange {
	return &Exchange{ctx: ctx, tool: t, requestID: callid.From(ctx), call: call, trace: trace.From(ctx), credentials: c}
}

// RequestID names the call to the service. It is the same in every attempt, and
// cannot be guessed.
func (x *Exchange) RequestID() string { return x.requestID }

// Request is the envelope of SPEC-TOOLS 2.1. Its parameters are the arguments
// as the client sent them, numbers with all their digits.
type Request struct {
	RequestID  string          `json:"request_id"`
	Tool       string          `json:"tool"`
	Action     string          `json:"action"`
	Parameters json.RawMessage `json:"parameters"`
	Auth       *Auth           `json:"auth,omitempty"` // nil where there is none
	Context    Context         `json:"context"`
}

// Auth is what a call is authenticated with.
type Auth struct {
	Type  string `json:"type"`
	Token string `json:"token"`
}

// Context says what a call is a part of. Task is "" where the client has no
// session and says nothing; it is sent all the same, as the page has it.
type Context struct {
	Task      string `json:"task"`
	Agent     string `json:"agent"`
	Attempt   int    `json:"attempt"`
	Namespace string `json:"namespace,omitempty"`
	TraceID   string `json:"trace_id,omitempty"`
	SpanID    string `json:"span_id,omitempty"`
}

// Request is the attempt's envelope.
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

// JSON is the envelope as it is sent. It holds the token.
func (r Request) JSON() []byte { return encoded(r) }

// encoded is a request as JSON, with the arguments as they are.
func encoded(request any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(request); err != nil {
		panic(err) // arguments are valid JSON, all else is text
	}
	return bytes.TrimSpace(out.Bytes())
}

// Arguments are those of the call, {} if there are none.
func (x *Exchange) Arguments() json.RawMessage {
	args := bytes.TrimSpace(x.call.Args)
	if len(args) == 0 || string(args) == "null" {
		return json.RawMessage("{}")
	}
	return args
}
