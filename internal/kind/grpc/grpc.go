// Package grpc handles calls of tools that are gRPC services: one unary method, with the envelopes
// of the tool contract as JSON (SPEC-TOOLS 3.3).
//
// It knows only this method, and neither descriptors nor protobuf messages. It makes one attempt per
// call; the bridge, which knows the policy, makes further ones.
//
// Its invariant: it never reads more than max_output bytes of what a service sends.
package grpc

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"connectrpc.com/connect"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/kind/post"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
)

// method is the method of every service, as the path of a URL.
const method = "/orloj.tool.v1.ToolService/Execute"

// Options has what all tools that are services share.
type Options = post.Options

// Tool handles the calls of one tool. Call may be used from any goroutine; all calls share a
// connection.
type Tool struct {
	name     string
	host     string // with the port
	agent    string
	contract *contract.Tool
	auth     *auth.Source
	service  *outbound.Service
	client   *connect.Client[message, message]
	listed   []*mcp.Tool
}

// New returns the Tool for a manifest.
func New(t manifest.Tool, opts Options) (*Tool, error) {
	spoken, err := contract.For(t)
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(t.Resource.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("%s: endpoint: %w", t.Source, err)
	}
	client := opts.Client.HTTPClient()
	scheme := "https"
	if at.Scheme == "grpc" {
		client, scheme = opts.Client.H2C(), "http"
	}
	wire := &wire{tool: t.Name, client: client, most: cmp.Or(t.Run.MaxOutput, manifest.DefaultMaxOutput)}
	return &Tool{
		name:     t.Name,
		host:     at.Host,
		agent:    opts.UserAgent,
		contract: spoken,
		auth:     auth.New(t.Resource.Auth, opts.Auth),
		service:  opts.Client.Service(t.Resource.Endpoint),
		client: connect.NewClient[message, message](wire, (&url.URL{Scheme: scheme, Host: at.Host, Path: method}).String(),
			connect.WithGRPC(), connect.WithCodec(codec{}),
			// No compression: a small message could unpack to a large one.
			connect.WithAcceptCompression("gzip", nil, nil)),
		listed: []*mcp.Tool{t.Listed()},
	}, nil
}

// Tools returns the one tool.
func (t *Tool) Tools() []*mcp.Tool { return t.listed }

// String returns the name of the tool for logs.
func (t *Tool) String() string { return "grpc " + t.name }

// Call makes one attempt. Its error is a *fault.Error.
func (t *Tool) Call(ctx context.Context, call peer.Call) (answer peer.Answer, err error) {
	ctx, over := trace.Begin(ctx)
	defer over()
	err = t.auth.Do(ctx, func(c auth.Credentials) error {
		answer, err = t.execute(ctx, call.Owner, t.contract.Exchange(ctx, call, c), c)
		return err
	})
	return answer, err
}

// execute makes the request, when the client has room for it, and reads the answer.
func (t *Tool) execute(ctx context.Context, owner turns.Owner, x *contract.Exchange, c auth.Credentials) (peer.Answer, error) {
	own := &exchange{Context: ctx, owner: owner, asks: x.Request().JSON()}
	req := connect.NewRequest(&own.asks)
	t.describe(ctx, req.Header(), c)
	if err := t.send(ctx, own, req, c); err != nil {
		return peer.Answer{}, err
	}
	return x.Answer(own.answer)
}

// send makes the request of an exchange, which gets the answer.
func (t *Tool) send(ctx context.Context, own *exchange, req *connect.Request[message], c auth.Credentials) error {
	if err := t.service.Begin(ctx, own.owner); err != nil {
		return err
	}
	defer t.service.End(own.owner)
	if _, err := t.client.CallUnary(own, req); err != nil { //nolint:contextcheck // own is ctx with its exchange
		return t.failure(ctx, err, c)
	}
	return nil
}

// describe sets the metadata of a call.
func (t *Tool) describe(ctx context.Context, metadata http.Header, c auth.Credentials) {
	if t.agent != "" {
		metadata.Set("User-Agent", t.agent)
	}
	trace.From(ctx).Headers(metadata.Set)
	c.Apply(metadata)
}
