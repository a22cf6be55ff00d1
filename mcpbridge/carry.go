package mcpbridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/rawjson"
)

// carrier takes JSON past the SDK, which decodes what it knows into its own
// types and so loses digits, unknown members and unknown kinds of content. What
// comes in is put, as text, into its own _meta, which the SDK hands on; what
// goes out takes the place of the SDK's params.
type carrier struct {
	key string // in _meta; nobody else knows it
}

func newCarrier() carrier { return carrier{key: "orla/" + rand.Text()} }

// passedOn are the requests whose params peers get to see.
var passedOn = []string{methodCall, methodRead, methodGetPrompt, methodComplete}

// load returns a message in which its params, or its result, are carried. What
// needs no carrying is returned as it is. raw must be valid JSON.
func (c carrier) load(raw json.RawMessage) json.RawMessage {
	var method string
	var params, result json.RawMessage
	ok := rawjson.Members(raw, func(key string, value json.RawMessage) bool {
		switch key {
		case "method":
			method = rawjson.String(value)
			return slices.Contains(passedOn, method)
		case "params":
			params = value
		case "result":
			result = value
		}
		return true
	})
	switch {
	case !ok:
		return raw
	case method == "" && result != nil:
		// An answer to one of our questions. The SDK looks for content in some.
		stand := parts{[]byte(`{"content":{"type":"text","text":""},"_meta":`), c.meta(nil, result), []byte("}")}
		return replaced(raw, member{Key: "result", Value: stand.join()})
	case method == "" || params == nil:
		return raw
	}
	kept := params
	if method == methodCall { // the SDK leaves the arguments as they are
		kept = replaced(params, member{Key: "arguments", Value: nil})
	}
	var meta json.RawMessage
	plain := rawjson.Members(params, func(key string, value json.RawMessage) bool {
		if key == "_meta" {
			meta = value
		}
		return true
	})
	if !plain || meta != nil && meta[0] != '{' {
		return raw // for the SDK to refuse
	}
	loaded := c.meta(meta, kept)
	if loaded == nil {
		return raw
	}
	return replaced(raw, member{Key: "params", Value: replaced(withoutAnswers(params), member{Key: "_meta", Value: loaded})})
}

// meta is a _meta that carries cargo beside what it has; nil if it is unusual.
func (c carrier) meta(had, cargo json.RawMessage) json.RawMessage {
	if had == nil {
		had = json.RawMessage("{}")
	}
	with, ok := rawjson.Edit(had, nil, member{Key: c.key, Value: rawjson.Quote(string(cargo))})
	if !ok {
		return nil
	}
	return with
}

// replaced is rewritten in one piece; raw itself if it is unusual.
func replaced(raw json.RawMessage, change ...member) json.RawMessage {
	out, ok := rawjson.Edit(raw, nil, change...)
	if !ok {
		return raw
	}
	return out
}

// unload returns what was carried in the _meta of params or of a result, nil
// if nothing was: a message in a batch goes without.
func (c carrier) unload(meta map[string]any) json.RawMessage {
	text, _ := meta[c.key].(string)
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

// paramsOf returns the params of a request that is passed on, as they came. Of
// what was not carried they are what the SDK made of them.
func (c carrier) paramsOf(params mcp.Params) json.RawMessage {
	if raw := c.unload(params.GetMeta()); raw != nil {
		return raw
	}
	raw, err := json.Marshal(params)
	if err != nil { // the SDK has decoded it from JSON
		panic(err)
	}
	return raw
}

// sent is what goes out in place of what the SDK would send, and what comes back.
type sent struct {
	method string
	params json.RawMessage
	result mcp.Result
}

// sentKey is the key of a *sent.
type sentKey struct{}

// outgoing sends what the context holds instead of the SDK's request.
func outgoing(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		s, ok := ctx.Value(sentKey{}).(*sent)
		if !ok {
			return next(ctx, method, req)
		}
		var err error
		s.result, err = next(ctx, s.method, &rawRequest{Request: req, params: &rawParams{json: s.params}})
		if err == nil && s.result != nil {
			err = errAnswered // the SDK takes the result for one of another method
		}
		return nil, err
	}
}

// rawRequest is a request with other params.
type rawRequest struct {
	mcp.Request
	params *rawParams
}

// GetParams returns the other params.
func (r *rawRequest) GetParams() mcp.Params { return r.params }

// rawParams are params as the JSON that they are.
type rawParams struct {
	mcp.ParamsBase
	json json.RawMessage
}

// MarshalJSON returns the params.
func (p *rawParams) MarshalJSON() ([]byte, error) {
	if len(p.json) == 0 {
		return []byte("{}"), nil
	}
	return p.json, nil
}
