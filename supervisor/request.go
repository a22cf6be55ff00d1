package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/yosida95/uritemplate/v3"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
)

// requestTimeout bounds a request that is no call: no manifest has a word on it.
const requestTimeout = 30 * time.Second

// othersTimeout bounds what is asked of one peer among several.
const othersTimeout = 5 * time.Second

// Request passes a request that is no call on to the peer that it is for. An
// error is a *fault.Error, or a *jsonrpc.Error for the client.
//
// logging/setLevel goes to every peer that logs, and succeeds when they have
// been told as far as they could be.
func (s *Supervisor) Request(ctx context.Context, req peer.Request) (json.RawMessage, error) {
	ctx, leave, err := s.enter(ctx, req.Line)
	if err != nil {
		return nil, err
	}
	defer leave()
	if s.opts.AdmitRequest != nil && asks(req.Method) {
		if err := s.opts.AdmitRequest(ctx, req); err != nil {
			return nil, err
		}
	}
	var about subject
	if len(req.Params) > 0 {
		if err := json.Unmarshal(req.Params, &about); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: req.Method + ": params are not of the shape that the protocol gives them"}
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, tooLate(req.Method, requestTimeout))
	defer cancel()
	for {
		c := s.catalog.Load()
		raw, err := c.request(ctx, req, about)
		if !errors.Is(err, peer.ErrGone) || s.catalog.Load() == c {
			return raw, err
		}
	}
}

// asks reports whether a request wants something of a peer. One that says how
// much the client wants to hear, or that it wants to hear no more, does not.
func asks(method string) bool {
	return method != "logging/setLevel" && method != "resources/unsubscribe"
}

// subject is what a request is about, as far as that finds its peer.
type subject struct {
	URI  string `json:"uri"`
	Name string `json:"name"`
	Ref  struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	} `json:"ref"`
}

func (c *Catalog) request(ctx context.Context, req peer.Request, about subject) (json.RawMessage, error) {
	switch req.Method {
	case "prompts/get":
		if p, ok := c.prompts[about.Name]; ok {
			return p.Request(ctx, req)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no prompt " + about.Name}
	case "completion/complete":
		if p, ok := c.completer(about.Ref.Name, about.Ref.URI); ok {
			return p.Request(ctx, req)
		}
		return json.RawMessage(`{"completion":{"values":[]}}`), nil
	case "logging/setLevel":
		var told sync.WaitGroup
		for _, p := range c.Loggers() {
			told.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, othersTimeout)
				defer cancel()
				_, _ = p.Request(ctx, req) // each new process is told again
			})
		}
		told.Wait()
		return json.RawMessage(`{}`), nil
	default: // resources/read, subscribe and unsubscribe
		return c.resource(ctx, req, about.URI)
	}
}

// completer finds who completes the arguments of a prompt or of a template.
func (c *Catalog) completer(prompt, uri string) (Peer, bool) {
	p, ok := c.prompts[prompt]
	if !ok {
		if p, ok = c.templates[uri]; !ok {
			p, ok = c.resources[uri]
		}
	}
	return p, ok && p.Offers().Completes
}

// Loggers are the peers that are told a log level.
func (c *Catalog) Loggers() []Peer {
	return slices.DeleteFunc(slices.Clone(c.peers), func(p Peer) bool { return !p.Offers().Logs })
}

// Holders are the peers that may have a resource: the one that lists it, or whose
// template it fits. What is neither may still be known to a peer, since a tool's
// answer may link to it; then they are all that can be read from.
func (c *Catalog) Holders(uri string) (peers []Peer, listed bool) {
	if p, ok := c.resources[uri]; ok {
		return []Peer{p}, true
	}
	for _, t := range c.Templates {
		if fits(t.URITemplate, uri) {
			return []Peer{c.templates[t.URITemplate]}, true
		}
	}
	return slices.DeleteFunc(slices.Clone(c.peers), func(p Peer) bool { return !p.Offers().Reads }), false
}

// resource asks the peer that has a resource, or those that may have it until one
// does. Of what is to be done later nobody can say yet whether it has it: all are
// asked.
func (c *Catalog) resource(ctx context.Context, req peer.Request, uri string) (json.RawMessage, error) {
	holders, listed := c.Holders(uri)
	if listed {
		return holders[0].Request(ctx, req)
	}
	err := error(&jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: rawjson.Pair("uri", uri)})
	var found json.RawMessage
	session := ""
	if req.Client != nil {
		session = req.Client.Session()
	}
	for _, p := range holders {
		asking, cancel := context.WithTimeout(ctx, othersTimeout)
		// Without its client: a peer that is merely asked must not take it for
		// one that calls it, beside those that do.
		raw, refusal := p.Request(asking, peer.Request{Method: req.Method, Params: req.Params, Line: req.Line, Session: session, Later: req.Later})
		cancel()
		if refusal == nil && !req.Later {
			return raw, nil
		}
		if refusal == nil {
			found = raw
		}
		if _, refused := errors.AsType[*jsonrpc.Error](refusal); !refused && refusal != nil {
			err = refusal
		}
	}
	if found != nil {
		return found, nil
	}
	return nil, err
}

// fits reports whether a URI can come from a template.
func fits(template, uri string) bool {
	t, err := uritemplate.New(template)
	return err == nil && t.Regexp().MatchString(uri)
}
