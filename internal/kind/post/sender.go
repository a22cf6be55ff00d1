package post

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/contract"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
)

// maxWords is how much is read of an answer that is not a result. So much of each
// call nobody counts, and more than that has no place in the room for answers.
const maxWords = turns.Little

// Options has what all tools that are services share.
type Options struct {
	// Client makes the requests. Required.
	Client *outbound.Client
	// Auth has what credentials are made from. Required for tools with auth.
	Auth auth.Options
	// UserAgent is the User-Agent header. If empty, that of net/http.
	UserAgent string
}

// Sender sends the requests of one tool. It may be used from any goroutine.
type Sender struct {
	name     string
	contract *contract.Tool
	auth     *auth.Source // nil without auth
	service  *outbound.Service
	max      int64
	opts     Options
}

// NewSender returns the Sender for a tool that is a service.
func NewSender(t manifest.Tool, opts Options) (*Sender, error) {
	spoken, err := contract.For(t)
	if err != nil {
		return nil, err
	}
	s := &Sender{
		name: t.Name, contract: spoken, auth: auth.New(t.Resource.Auth, opts.Auth), service: opts.Client.Service(t.Resource.Endpoint),
		max: cmp.Or(t.Run.MaxOutput, manifest.DefaultMaxOutput), opts: opts,
	}
	return s, nil
}

// Max is the largest size of an answer in bytes.
func (s *Sender) Max() int64 { return s.max }

// Do makes one attempt with current credentials, and a second one if the access token is not
// accepted (SPEC-TOOLS 5.2).
func (s *Sender) Do(ctx context.Context, call peer.Call, attempt func(*Attempt) error) error {
	return s.auth.Do(ctx, func(c auth.Credentials) error {
		a := &Attempt{Exchange: s.contract.Exchange(ctx, call, c), sender: s, owner: call.Owner, credentials: c}
		return attempt(a)
	})
}

// Attempt is an exchange with the credentials that it uses.
type Attempt struct {
	*contract.Exchange
	sender      *Sender
	owner       turns.Owner // whose share the call uses
	credentials auth.Credentials
}

// Request is one HTTP request of an attempt.
type Request struct {
	Method, URL string
	Accept      string
	// Contract says that Body or the wanted answer is an envelope.
	Contract bool
	// Later says that a 202 promises an answer, so that its body is not the answer.
	Later bool
	Body  []byte // JSON; nil for none
}

// Reply is the answer to a request.
type Reply struct {
	*http.Response        // its Body has been read
	Said           []byte // the body; for an answer that is not a result, its beginning
	attempt        *Attempt
}

// Send makes one request, when the client has room for it. An answer with any status is a Reply; the
// error is a
// *fault.Error.
func (a *Attempt) Send(ctx context.Context, r Request) (*Reply, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, body)
	if err != nil {
		// The error quotes the URL, which may have a secret in its query.
		return nil, fault.New(fault.RuntimePolicyInvalid, "the endpoint of %s is not a valid URL", a.sender.name)
	}
	a.head(ctx, req, r)
	if err := a.sender.service.Begin(ctx, a.owner); err != nil {
		return nil, err
	}
	defer a.sender.service.End(a.owner)
	resp, err := a.sender.opts.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // everything needed has been read
	reply := &Reply{Response: resp, attempt: a}
	switch {
	case r.Later && resp.StatusCode == http.StatusAccepted:
		_, _ = io.CopyN(io.Discard, resp.Body, maxWords) // so that the connection can be reused
		return reply, nil
	case !reply.Succeeded():
		// The status is enough, even if the body breaks off.
		reply.Said, _ = io.ReadAll(io.LimitReader(resp.Body, min(a.sender.max, maxWords)))
		return reply, nil
	}
	if coding := resp.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		const enough = 32
		if len(coding) > enough { // redaction would miss a secret that is cut
			coding = "…"
		}
		return nil, fault.New(fault.ExecutionFailed, "%s sent an answer with an unexpected encoding (Content-Encoding: %q)", a.sender.name, coding)
	}
	reply.Said, err = outbound.Counted(ctx, resp.ContentLength).Body(resp.Body, a.sender.max)
	return reply, err
}

// head sets the headers of a request.
func (a *Attempt) head(ctx context.Context, req *http.Request, r Request) {
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", r.Accept)
	if r.Contract {
		req.Header.Set(contract.VersionHeader, contract.Version)
	}
	if a.sender.opts.UserAgent != "" {
		req.Header.Set("User-Agent", a.sender.opts.UserAgent)
	}
	trace.From(ctx).Headers(req.Header.Set)
	a.credentials.Apply(req.Header)
}

// Succeeded reports whether the status is 2xx.
func (r *Reply) Succeeded() bool { return r.StatusCode/100 == 2 }

// RetryAfter adds the pause that the service asks for to an error.
func (r *Reply) RetryAfter(err error) error {
	if pause := outbound.RetryAfter(r.Header); pause > 0 {
		if f := fault.From(err); f != nil && f.Retryable() {
			later := *f
			later.RetryAfter = pause
			return &later
		}
	}
	return err
}

// Fault returns the error for a status other than 2xx. An envelope is more precise than the status
// and wins, except for 401: package auth has to learn that the credentials were not accepted, and
// may have newer ones. strict is as for contract.Failure.
func (r *Reply) Fault(strict bool) *fault.Error {
	a := r.attempt
	f := outbound.StatusFault(a.sender.name, r.Response, []byte(a.credentials.Redact(string(r.Said))))
	said := a.Failure(r.Said, strict)
	switch {
	case said == nil:
	case r.StatusCode == http.StatusUnauthorized:
		f.Reason, f.Logged = said.Reason, said.Logged
	default:
		said.RetryAfter = f.RetryAfter
		return said
	}
	return f
}
