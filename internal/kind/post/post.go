// Package post handles calls by one HTTP POST each (SPEC-TOOLS 3.1, 3.2): of the arguments, for any
// service, or of the contract's envelope. Other kinds that use HTTP share its code for sending a
// request and for the meaning of a status.
//
// It keeps no state between calls and has no deadline except the context's. It repeats a request
// only if the access token is not accepted any more.
package post

import (
	"context"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/manifest"
)

// What the Accept header asks for: an envelope, or anything.
const (
	acceptEnvelope = "application/json"
	acceptAny      = "application/json, text/*;q=0.9, */*;q=0.8"
)

// Tool handles the calls of one tool of type http or external.
type Tool struct {
	sender   *Sender
	endpoint string
	strict   bool // answers must be envelopes
	listed   []*mcp.Tool
}

// New returns the Tool for a manifest.
func New(t manifest.Tool, opts Options) (*Tool, error) {
	sender, err := NewSender(t, opts)
	if err != nil {
		return nil, err
	}
	return &Tool{
		sender: sender, endpoint: t.Resource.Endpoint, strict: t.Kind == manifest.External,
		listed: []*mcp.Tool{t.Listed()},
	}, nil
}

// Tools implements supervisor.Provider.
func (t *Tool) Tools() []*mcp.Tool { return t.listed }

// Call makes one attempt. The error is a *fault.Error.
func (t *Tool) Call(ctx context.Context, call peer.Call) (answer peer.Answer, err error) {
	ctx, over := trace.Begin(ctx)
	defer over()
	err = t.sender.Do(ctx, call, func(a *Attempt) error {
		var err error
		answer, err = t.attempt(ctx, a)
		return err
	})
	return answer, err
}

func (t *Tool) attempt(ctx context.Context, a *Attempt) (peer.Answer, error) {
	r := Request{Method: http.MethodPost, URL: t.endpoint, Accept: acceptAny, Body: a.Arguments()}
	if t.strict {
		r = Envelope(a, t.endpoint)
	}
	reply, err := a.Send(ctx, r)
	if err != nil {
		return peer.Answer{}, err
	}
	if !reply.Succeeded() {
		return peer.Answer{}, reply.Fault(t.strict)
	}
	var answer peer.Answer
	if t.strict {
		answer, err = a.Answer(reply.Said)
	} else {
		answer, err = a.Raw(reply.Said, reply.Header.Get("Content-Type"))
	}
	return answer, reply.RetryAfter(err)
}

// Envelope returns the request that sends an attempt to a service that speaks the contract.
func Envelope(a *Attempt, url string) Request {
	return Request{Method: http.MethodPost, URL: url, Accept: acceptEnvelope, Contract: true, Body: a.Request().JSON()}
}
