package mcpbridge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/turns"
)

// errAnswered says that a question has its answer.
var errAnswered = errors.New("answered")

// request is what every request of the SDK's server has.
type request interface {
	mcp.Request
	ClientCapabilities() *mcp.ClientCapabilities
}

// caller is the client whose request is being answered.
type caller struct {
	carrier carrier
	session *mcp.ServerSession
	id      string
	line    turns.Line
	token   json.RawMessage // nil if the client gave none
	newest  bool
	says    peer.Declared
	*askable

	// request is the context of the client's request: the SDK finds in it which
	// stream its messages go to.
	request context.Context
	asking  context.Context // the same, but ended by end
	stop    context.CancelFunc

	sending sync.RWMutex // held for reading while something is sent; guards over
	over    bool         // the request has been answered
}

var _ peer.Client = (*caller)(nil)

// newCaller returns the client of a request that came through the SDK. Its end
// must be called before the request is answered.
func (b *Bridge) newCaller(ctx context.Context, r request, session *mcp.ServerSession) *caller {
	c := &caller{carrier: b.carrier, session: session, request: ctx, newest: isNewest(r), askable: &askable{}}
	c.asking, c.stop = context.WithCancel(ctx)
	from := callerOf(r.GetExtra())
	if !c.newest || from.transport == Stdio { // a connection is one client's
		from.session = session.ID()
	}
	c.id, c.line = from.client(), from.line()
	if token, has := r.GetParams().GetMeta()["progressToken"]; has && token != nil {
		if raw, err := json.Marshal(token); err == nil {
			c.token = raw
		}
	}
	c.says.Repeats = c.newest
	if c.newest {
		c.says.LogLevel, _ = r.GetParams().GetMeta()[metaLogLevel].(string)
	} else {
		c.says.LogLevel = b.verbosity.level(session.ID())
	}
	if !slices.Contains(levels, c.says.LogLevel) {
		c.says.LogLevel = ""
	}
	if caps := r.ClientCapabilities(); caps != nil {
		c.says.Capabilities = asked(caps)
		c.takes = map[string]bool{
			methodSample: caps.Sampling != nil, //nolint:staticcheck // deprecated by the newest era only
			methodElicit: caps.Elicitation != nil,
			methodRoots:  caps.RootsV2 != nil, //nolint:staticcheck // deprecated by the newest era only
		}
	}
	return c
}

// end makes the client one that is spoken to no more: what is being sent goes
// out first, and what has been asked is given up.
func (c *caller) end() {
	c.stop()
	c.sending.Lock()
	defer c.sending.Unlock()
	c.over = true
}

// Session implements peer.Client.
func (c *caller) Session() string { return c.id }

// Line implements peer.Client.
func (c *caller) Line() turns.Line { return c.line }

// Declared implements peer.Client.
func (c *caller) Declared() peer.Declared { return c.says }

// asked are the capabilities of a client to be asked something, as JSON; nil for none.
// What else it has declared is between the client and Orla.
func asked(caps *mcp.ClientCapabilities) json.RawMessage {
	raw, err := json.Marshal(&mcp.ClientCapabilities{Sampling: caps.Sampling, Elicitation: caps.Elicitation, RootsV2: caps.RootsV2}) //nolint:staticcheck // deprecated by the newest era only
	if err != nil {
		return nil
	}
	return raw
}

// Hears implements peer.Client.
func (c *caller) Hears() bool { return true }

// WantsProgress implements peer.Client.
func (c *caller) WantsProgress() bool { return c.token != nil }

// Notify implements peer.Client. What does not arrive is the client's business:
// it has left.
func (c *caller) Notify(ctx context.Context, method string, params json.RawMessage) {
	c.sending.RLock()
	defer c.sending.RUnlock()
	if c.over {
		return
	}
	ctx, forget := joined(c.request, ctx)
	defer forget()
	switch method {
	case methodProgress:
		if with, ok := rewritten(params, member{Key: "progressToken", Value: c.token}); ok && c.token != nil {
			ctx = context.WithValue(ctx, sentKey{}, &sent{method: method, params: with.join()})
			_ = c.session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{})
		}
	case methodMessage:
		var level string
		rawjson.Members(params, func(key string, value json.RawMessage) bool {
			if key == "level" {
				level = rawjson.String(value)
			}
			return true
		})
		if slices.Contains(levels, level) {
			ctx = context.WithValue(ctx, sentKey{}, &sent{method: method, params: params})
			_ = c.session.Log(ctx, &mcp.LoggingMessageParams{Level: mcp.LoggingLevel(level)}) //nolint:staticcheck // deprecated by the newest era only; it knows what the session asked for
		}
	}
}

// Ask implements peer.Client.
func (c *caller) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := c.refuses(method); err != nil {
		return nil, err
	}
	if c.newest {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "the client speaks a version of the protocol in which " + method + " cannot be asked of it here"}
	}
	c.sending.RLock()
	defer c.sending.RUnlock()
	if c.over {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client's request has been answered; nothing can be asked any more"}
	}
	ctx, forget := joined(c.asking, ctx)
	defer forget()
	s := &sent{method: method, params: params}
	err := c.session.Ping(context.WithValue(ctx, sentKey{}, s), nil)
	switch refused, ok := errors.AsType[*jsonrpc.Error](err); {
	case errors.Is(err, errAnswered):
		return c.result(s.result)
	case ctx.Err() != nil:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: method + " was given up before the client answered"}
	case ok && refused.Code != 0:
		return nil, &jsonrpc.Error{Code: refused.Code, Message: refused.Message, Data: refused.Data}
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client cannot be asked: its connection takes no requests"}
}

// result is the client's answer as it came.
func (c *caller) result(res mcp.Result) (json.RawMessage, error) {
	if raw := c.carrier.unload(res.GetMeta()); raw != nil {
		return raw, nil
	}
	raw, err := json.Marshal(res) // it came in a batch
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "the client's answer cannot be passed on"}
	}
	return raw, nil
}

// joined returns a context with the values of one that ends with either.
func joined(of, with context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(of)
	forget := context.AfterFunc(with, cancel)
	return ctx, func() {
		forget()
		cancel()
	}
}

// ownMetaOf returns of a request's _meta what is for the peer: not what the
// protocol keeps for the parties, and no progress token, which is the client's.
// It returns nil if nothing is left.
func ownMetaOf(meta json.RawMessage) json.RawMessage {
	plain, _ := plainObject(meta)
	if plain == nil {
		return nil
	}
	own, _ := rawjson.Edit(plain, func(key string) bool {
		return strings.HasPrefix(key, protocolPrefix) || key == "progressToken"
	})
	if rawjson.Empty(own) {
		return nil
	}
	return own
}
