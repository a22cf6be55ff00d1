package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/recovered"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// requestTimeout bounds a request that is not a call: manifests have no setting for it.
const requestTimeout = 30 * time.Second

// othersTimeout bounds how long one peer among several is told something.
const othersTimeout = 5 * time.Second

// Request passes a request that is not a call to the peer that it is for. An
// error is a *fault.Error, or a *jsonrpc.Error for the client.
//
// logging/setLevel goes to every peer that logs, and succeeds when they have
// been told as far as they could be.
func (s *Supervisor) Request(ctx context.Context, req peer.Request) (json.RawMessage, error) {
	ctx, one, err := s.Enter(ctx, req.Owner)
	if err != nil {
		return nil, err
	}
	defer one.Leave()
	about, err := subjectOf(req.Params)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: req.Method + ": params " + err.Error()}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, tooLate(req.Method, requestTimeout))
	defer cancel()
	for again := false; ; again = true {
		c := s.having(ctx, func(c *Catalog) bool { return c.serves(req.Method, about, again) })
		raw, err := c.request(ctx, req, about)
		if !errors.Is(err, peer.ErrGone) || s.catalog.Load() == c {
			return raw, err
		}
	}
}

// RequestOf passes a request to a peer, whether or not what it is about belongs to that one now. Where
// too many are in flight, a peer that may get it later (peer.Request.Later) notes it all the same: it must
// not tell its next processes what is not true any more.
func (s *Supervisor) RequestOf(ctx context.Context, p Peer, req peer.Request) (json.RawMessage, error) {
	entered, one, err := s.Enter(ctx, req.Owner)
	if err != nil {
		if req.Later {
			over, end := context.WithCancelCause(ctx)
			end(err)
			_, _ = p.Request(over, req) // it does not wait
		}
		return nil, err
	}
	defer one.Leave()
	ctx, cancel := context.WithTimeoutCause(entered, requestTimeout, tooLate(req.Method, requestTimeout))
	defer cancel()
	return s.catalog.Load().pass(ctx, req, p)
}

// pass passes a request to a peer, if it is admitted.
func (c *Catalog) pass(ctx context.Context, req peer.Request, p Peer) (json.RawMessage, error) {
	if err := c.admits(ctx, req, p); err != nil {
		return nil, err
	}
	return p.Request(ctx, req)
}

// admits returns why a peer may not be asked; nil if it may.
func (c *Catalog) admits(ctx context.Context, req peer.Request, p Peer) error {
	if req.Noted != nil {
		req.Noted.Target = c.NameOf(p)
	}
	if c.admit == nil || !asks(req.Method) {
		return nil
	}
	return c.admit(ctx, req, func() *rules.Target { return c.TargetOfPeer(p) })
}

// asks reports whether a request wants something of a peer. One that says how
// much the client wants to hear, or that it wants to hear no more, does not.
func asks(method string) bool {
	return method != "logging/setLevel" && method != "resources/unsubscribe"
}

// subject is what a request is about, as far as that finds its peer.
type subject struct {
	uri, name       string
	refURI, refName string
}

// subjectOf returns what params are about. A peer may read another member than Orla of those that have one name, or names
// that differ in case: who has them is refused. So it is with arguments, which the audit log has.
func subjectOf(params json.RawMessage) (about subject, err error) {
	var ref json.RawMessage
	if err := read(params, map[string]any{"uri": &about.uri, "name": &about.name, "ref": &ref, "argument": nil, "arguments": nil}); err != nil {
		return subject{}, err
	}
	return about, read(ref, map[string]any{"uri": &about.refURI, "name": &about.refName})
}

// read decodes the members of an object that are wanted; nil is for one that is only to be there once. There may be none of it.
func read(object json.RawMessage, wanted map[string]any) error {
	shape := errors.New("are not of the shape that the protocol gives them")
	if len(object) == 0 || string(object) == "null" {
		return nil
	}
	if !rawjson.IsObject(object) {
		return shape
	}
	var found []string
	var wrong error
	rawjson.AllMembers(object, func(key []byte, value json.RawMessage) bool {
		for name, into := range wanted {
			if !strings.EqualFold(string(key), name) {
				continue
			}
			if slices.Contains(found, name) {
				wrong = fmt.Errorf("have %q more than once, perhaps in upper and lower case", name)
			} else if found = append(found, name); string(key) == name && into != nil && json.Unmarshal(value, into) != nil {
				wrong = shape
			}
		}
		return wrong == nil
	})
	return wrong
}

// serves reports whether a request need not wait for peers that have not said what they offer. Once
// its peer has gone, only one that lists what it is about will do.
func (c *Catalog) serves(method string, about subject, again bool) bool {
	switch method {
	case "prompts/get":
		_, held := c.held[about.name]
		return held || c.prompts[about.name] != nil
	case "resources/read", "resources/subscribe":
		p, listed := c.Holder(about.uri)
		return listed || p != nil && !again
	}
	return true
}

func (c *Catalog) request(ctx context.Context, req peer.Request, about subject) (json.RawMessage, error) {
	switch req.Method {
	case "prompts/get":
		if p, ok := c.prompts[about.name]; ok {
			return c.pass(ctx, req, p)
		}
		if held, ok := c.held[about.name]; ok {
			return c.refuse(ctx, req, held)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "there is no prompt " + about.name}
	case "completion/complete":
		if p, ok := c.completer(about.refName, about.refURI); ok {
			return c.pass(ctx, req, p)
		}
		return json.RawMessage(`{"completion":{"values":[]}}`), nil
	case "logging/setLevel":
		var told sync.WaitGroup
		for _, p := range c.Loggers() {
			told.Go(func() {
				defer recovered.To(c.log, "tell a peer a log level", nil)
				ctx, cancel := context.WithTimeout(ctx, othersTimeout)
				defer cancel()
				_, _ = p.Request(ctx, req) // each new process is told again
			})
		}
		told.Wait()
		return json.RawMessage(`{}`), nil
	default: // resources/read, subscribe and unsubscribe
		return c.resource(ctx, req, about.uri)
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
	var all []Peer
	for _, name := range slices.Sorted(maps.Keys(c.servers)) {
		if p := c.servers[name].Peer; p.Offers().Logs {
			all = append(all, p)
		}
	}
	return all
}

// Holder is the peer that a resource belongs to: the one that lists it, or whose template
// matches it best. One of the user's own goes before one of an installed package (SPEC M7). What no peer lists may still exist, since a tool's answer may link to
// it: it belongs to the peer that has all other resources of its authority, or else to
// the only peer that can be read from, if there is exactly one. Without any, p is nil.
func (c *Catalog) Holder(uri string) (p Peer, listed bool) {
	if peer.IsOwn(uri) {
		return nil, false
	}
	if p, ok := c.resources[uri]; ok {
		return p, true
	}
	if l, ok := c.owned.Find(uri); ok {
		return l.peer, true
	}
	if p, ok := c.matching.Find(uri); ok {
		return p, true
	}
	if p := c.realms[realmOf(uri)]; p != nil && p.Offers().Reads {
		return p, false
	}
	return c.reader, false
}

// resource asks the peer that a resource belongs to, and no other.
func (c *Catalog) resource(ctx context.Context, req peer.Request, uri string) (json.RawMessage, error) {
	p, _ := c.Holder(uri)
	if p == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "Resource not found", Data: rawjson.Pair("uri", uri)}
	}
	return c.pass(ctx, req, p)
}
