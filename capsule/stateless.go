package capsule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/rpc"
	"github.com/orla-project/orla/manifest"
)

// statelessVersion is the version of the protocol without sessions. A process that
// speaks it is told with each request who makes it, and answers a request that
// needs more with what it needs (docs/decisions/0030).
const statelessVersion = "2026-07-28"

// discoverPatience is how long an MCP server may take to say that it speaks
// statelessVersion, if its startup_timeout is not shorter. Servers that need not know
// MCP have askPatience.
const discoverPatience = 5 * time.Second

// link is a connection with a process, and the version of the protocol on it.
type link struct {
	*rpc.Conn

	stateless atomic.Bool // it speaks statelessVersion
}

// probing is whether a new process is asked which versions it speaks. A server that
// does not know the question may take it badly: a server that once left it without
// an answer is not asked again, and one that ended is not asked at its next start.
type probing struct{ state atomic.Int32 }

const (
	probes   int32 = iota // the next process is asked
	skipsOne              // the next one is not; if it starts, none is
	skipsAll
)

// discover asks which versions of the protocol the process speaks, and reports whether
// it is statelessVersion. It may say nothing: then it is spoken to as before 2026-07-28.
func (in *incarnation) discover(ctx context.Context) bool {
	r := in.c.tool.Runtime
	if only := r.Protocol == manifest.ProtocolStateless; !in.c.probing.state.CompareAndSwap(probes, skipsOne) && !only {
		return false
	}
	patience := min(discoverPatience, r.StartupTimeout/2)
	if r.Handshake == manifest.HandshakeHello {
		patience = askPatience
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	result, err := in.conn.Call(asking, rpc.Request{Method: "server/discover", Params: in.c.stateless(nil), Own: true, Quiet: true})
	_, refused := errors.AsType[*jsonrpc.Error](err)
	if err == nil {
		err = tooMuchSaid("server/discover", result)
	}
	switch {
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		in.c.log.Debug("a server does not answer server/discover; it is not asked again", "tool", in.c.tool.Name)
		in.c.probing.state.Store(skipsAll)
	case err == nil, refused, in.c.far(): // a remote server that is gone was not hurt by the question
		in.c.probing.state.Store(probes)
	}
	var said struct {
		Versions     []string                `json:"supportedVersions"`
		Capabilities *mcp.ServerCapabilities `json:"capabilities"`
	}
	if err != nil || json.Unmarshal(result, &said) != nil || !slices.Contains(said.Versions, statelessVersion) {
		return false
	}
	in.keep(said.Capabilities)
	in.conn.stateless.Store(true)
	in.c.log.Debug("a server speaks "+statelessVersion, "tool", in.c.tool.Name)
	return true
}

// initialized notes that the process has made the handshake of the older versions.
func (p *probing) initialized() { p.state.CompareAndSwap(skipsOne, skipsAll) }

// refused notes that it has not: it may have to be asked after all.
func (p *probing) refused() { p.state.Store(probes) }

// identity is what each request of statelessVersion says of Orla, up to what its client
// has declared.
func identity(version string) []byte {
	info, err := json.Marshal(&mcp.Implementation{Name: "orla", Title: "Orla", Version: version})
	if err != nil { // strings
		panic(err)
	}
	return fmt.Appendf(nil, `{"%s":"%s","%s":%s,"%s":`, mcp.MetaKeyProtocolVersion, statelessVersion, mcp.MetaKeyClientInfo, info, mcp.MetaKeyClientCapabilities)
}

// ownDeclared is what Orla declares for requests that are no client's.
var ownDeclared = peer.Declared{Capabilities: json.RawMessage(`{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`)}

// appendMeta writes the _meta of a request of statelessVersion. own are the members that
// it has besides, as an object; nil for none. token is 0 for no progress token.
func (c *Capsule) appendMeta(buf []byte, of peer.Declared, token int64, own json.RawMessage) []byte {
	buf = append(buf, c.identity...)
	if of.Capabilities == nil {
		buf = append(buf, "{}"...)
	}
	buf = append(buf, of.Capabilities...)
	if of.LogLevel != "" {
		buf = append(append(buf, `,"`+metaLogLevel+`":`...), rawjson.Quote(of.LogLevel)...)
	}
	if token != 0 {
		buf = strconv.AppendInt(append(buf, `,"progressToken":`...), token, 10)
	}
	if own == nil || rawjson.Empty(own) {
		return append(buf, '}')
	}
	return append(append(buf, ','), own[1:]...)
}

const metaLogLevel = "io.modelcontextprotocol/logLevel"

// own gives the params of a request of Orla's own.
func (in *incarnation) own(params json.RawMessage) func(int64) [][]byte {
	if !in.conn.stateless.Load() {
		return just(params)
	}
	return in.c.stateless(params)
}

// stateless gives the params of a request of Orla's own in statelessVersion.
func (c *Capsule) stateless(params json.RawMessage) func(int64) [][]byte {
	if params == nil {
		params = json.RawMessage("{}")
	}
	return just(rawjson.Set(params, "_meta", c.appendMeta(nil, ownDeclared, 0, nil)))
}

// statelessParams are those of a client's request other than a call.
func (c *Capsule) statelessParams(req peer.Request, params json.RawMessage, input peer.Input, id int64) json.RawMessage {
	var own json.RawMessage
	if !rawjson.IsObject(params) {
		params = json.RawMessage("{}")
	}
	rawjson.Members(params, func(key []byte, value json.RawMessage) bool {
		if string(key) == "_meta" && rawjson.IsObject(value) {
			own = rawjson.Compact(value)
		}
		return true
	})
	of, token := peer.Declared{}, int64(0)
	if req.Client != nil {
		of = req.Client.Declared()
		if req.Client.WantsProgress() {
			token = id
		}
	}
	params = rawjson.Set(params, "_meta", c.appendMeta(nil, of, token, own))
	if input.Responses != nil {
		params = rawjson.Set(params, "inputResponses", input.Responses)
	}
	if input.State != nil {
		params = rawjson.Set(params, "requestState", input.State)
	}
	return rawjson.Compact(params)
}

// listen has a process that speaks statelessVersion say when its lists and the resources
// that clients follow have changed, until ctx ends.
func (in *incarnation) listen(ctx context.Context) {
	const firstPause, lastPause = time.Second, time.Minute
	pause, release := firstPause, func() {}
	defer func() { release() }()
	for {
		var over chan error
		if filter := in.filter(); filter != nil {
			listening, cancel := context.WithCancel(ctx)
			over = make(chan error, 1)
			in.helpers.Go(func() {
				defer in.contain()
				params := in.c.stateless(slices.Concat([]byte(`{"notifications":`), filter, []byte("}")))
				_, err := in.conn.Call(listening, rpc.Request{Method: "subscriptions/listen", Params: params, Own: true, Standing: true})
				over <- err
			})
			in.awaitAcknowledged(ctx)
			release() // of the one before: nothing is missed between the two
			release = cancel
		} else {
			release()
			release = func() {}
		}
		select {
		case <-ctx.Done():
			return
		case <-in.c.asked.changed:
		case err := <-over:
			if _, refused := errors.AsType[*jsonrpc.Error](err); refused {
				in.c.log.Debug("a server does not tell of changes", "tool", in.c.tool.Name, "err", err)
				select {
				case <-in.c.asked.changed:
				case <-ctx.Done():
					return
				}
				continue
			}
			if !wait(ctx, pause) {
				return
			}
			pause = min(2*pause, lastPause)
			in.relistSoon() // something may have changed that nobody told of
		}
	}
}

// filter is what there is to listen for, as JSON; nil for nothing.
func (in *incarnation) filter() json.RawMessage {
	wanted := struct {
		Tools     bool     `json:"toolsListChanged,omitempty"`
		Prompts   bool     `json:"promptsListChanged,omitempty"`
		Resources bool     `json:"resourcesListChanged,omitempty"`
		Followed  []string `json:"resourceSubscriptions,omitempty"`
	}{
		Tools:     in.caps.Tools != nil && in.caps.Tools.ListChanged,
		Prompts:   in.caps.Prompts != nil && in.caps.Prompts.ListChanged,
		Resources: in.caps.Resources != nil && in.caps.Resources.ListChanged,
	}
	if in.caps.Resources != nil && in.caps.Resources.Subscribe {
		wanted.Followed = in.c.asked.followed()
	}
	raw, err := json.Marshal(wanted)
	if err != nil { // booleans and strings
		panic(err)
	}
	if rawjson.Empty(raw) {
		return nil
	}
	return raw
}

// awaitAcknowledged waits for a moment until a process says that it has begun to tell.
func (in *incarnation) awaitAcknowledged(ctx context.Context) {
	timer := time.NewTimer(askPatience)
	defer timer.Stop()
	select {
	case <-in.acknowledged:
	case <-timer.C:
	case <-ctx.Done():
	}
}
