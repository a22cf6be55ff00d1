package protocol

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// CallParams returns the params of a tools/call, with meta in place of the call's own _meta.
// The id of the request is its progress token.
func (p *Peer) CallParams(own string, call peer.Call, meta json.RawMessage, id int64) [][]byte {
	if p.Stateless() {
		return p.orla.statelessCall(own, call, meta, id)
	}
	return callParams(own, call, meta, id)
}

// RequestParams returns the params of a client's request other than a call.
func (p *Peer) RequestParams(req peer.Request, params json.RawMessage, input peer.Input, id int64) [][]byte {
	if p.Stateless() {
		return [][]byte{p.orla.statelessParams(req, params, input, id)}
	}
	return Just(params)(id)
}

// statelessCall returns the params of a tools/call in statelessVersion.
func (o *Orla) statelessCall(own string, call peer.Call, given json.RawMessage, id int64) [][]byte {
	args := orEmpty(rawjson.Compact(call.Args))
	head := beforeArguments(own)
	of, token := peer.Declared{}, int64(0)
	if call.Client != nil {
		of = call.Client.Declared()
		if call.Client.WantsProgress() {
			token = id
		}
	}
	const usual = 512
	tail := o.appendMeta(append(make([]byte, 0, usual), `,"_meta":`...), of, token, rawjson.Compact(given))
	if call.Input.Responses != nil {
		tail = append(append(tail, `,"inputResponses":`...), rawjson.Compact(call.Input.Responses)...)
	}
	if call.Input.State != nil {
		tail = append(append(tail, `,"requestState":`...), call.Input.State...)
	}
	return [][]byte{head, args, append(tail, '}')}
}

// callParams returns the params of a tools/call in an older version.
func callParams(own string, call peer.Call, given json.RawMessage, id int64) [][]byte {
	args := orEmpty(rawjson.Compact(call.Args))
	head := beforeArguments(own)
	tail := []byte("}")
	meta := rawjson.Compact(given)
	if token := call.Client != nil && call.Client.WantsProgress(); token || meta != nil {
		tail = append(withToken([]byte(`,"_meta":`), meta, token, id), '}')
	}
	return [][]byte{head, args, tail}
}

// beforeArguments returns the params of a tools/call up to the arguments.
func beforeArguments(own string) []byte {
	const name, arguments = `{"name":`, `,"arguments":`
	head := append(make([]byte, 0, len(name)+rawjson.QuotedSize(len(own))+len(arguments)), name...)
	return append(rawjson.AppendQuote(head, own), arguments...)
}

// withToken appends a _meta object to buf, with id as the progress token if token is true.
func withToken(buf []byte, meta json.RawMessage, token bool, id int64) []byte {
	switch {
	case !token:
		return append(buf, meta...)
	case meta == nil || rawjson.Empty(meta):
		return fmt.Appendf(buf, `{"progressToken":%d}`, id)
	}
	buf = fmt.Appendf(buf, `{"progressToken":%d,`, id)
	return append(buf, meta[1:]...)
}

// statelessParams returns the params of a client's request other than a call, in
// statelessVersion.
func (o *Orla) statelessParams(req peer.Request, params json.RawMessage, input peer.Input, id int64) json.RawMessage {
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
	params = rawjson.Set(params, "_meta", o.appendMeta(nil, of, token, own))
	if input.Responses != nil {
		params = rawjson.Set(params, "inputResponses", input.Responses)
	}
	if input.State != nil {
		params = rawjson.Set(params, "requestState", input.State)
	}
	return rawjson.Compact(params)
}

// identity returns the beginning of the _meta of each request in statelessVersion: the version
// and Orla's name, up to the capabilities of the client.
func identity(version string) []byte {
	info, err := json.Marshal(&mcp.Implementation{Name: "orla", Title: "Orla", Version: version})
	if err != nil { // strings
		panic(err)
	}
	return fmt.Appendf(nil, `{"%s":"%s","%s":%s,"%s":`, mcp.MetaKeyProtocolVersion, statelessVersion, mcp.MetaKeyClientInfo, info, mcp.MetaKeyClientCapabilities)
}

// ownDeclared is what Orla declares in its own requests.
var ownDeclared = peer.Declared{Capabilities: json.RawMessage(`{"sampling":{},"elicitation":{"form":{},"url":{}},"roots":{}}`)}

// appendMeta appends the _meta of a request in statelessVersion. own has further members, as
// an object; nil for none. A token of 0 means no progress token.
func (o *Orla) appendMeta(buf []byte, of peer.Declared, token int64, own json.RawMessage) []byte {
	buf = append(buf, o.identity...)
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

// own returns the params of a request that Orla makes for itself.
func (p *Peer) own(params json.RawMessage) func(int64) [][]byte {
	if !p.stateless.Load() {
		return Just(params)
	}
	return p.orla.stateless(params)
}

// stateless returns the params of a request that Orla makes for itself, in statelessVersion.
func (o *Orla) stateless(params json.RawMessage) func(int64) [][]byte {
	return Just(rawjson.Set(orEmpty(params), "_meta", o.appendMeta(nil, ownDeclared, 0, nil)))
}

// Just returns params that do not depend on the id of the request.
func Just(params json.RawMessage) func(int64) [][]byte {
	params = orEmpty(params)
	return func(int64) [][]byte { return [][]byte{rawjson.Compact(params)} }
}

// orEmpty returns an empty object in place of nothing.
func orEmpty(object json.RawMessage) json.RawMessage {
	if object == nil {
		return json.RawMessage("{}")
	}
	return object
}

// ObjectOf returns the params of a capsule's message as an object: an empty one if they are missing. It
// reports false for any other value.
func ObjectOf(params json.RawMessage) (json.RawMessage, bool) {
	if params == nil || string(params) == "null" {
		return json.RawMessage("{}"), true
	}
	return params, rawjson.IsObject(params)
}
