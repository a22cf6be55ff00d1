package capsule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/turns"
)

// maxRequired bounds the values in an answer that requires input. Decoded they take many
// times their bytes.
const maxRequired = 10_000

// maxRounds bounds how often one request may require input of a client.
const maxRounds = 10

// required is an answer that requires input of the client (MCP 2026-07-28,
// basic/patterns/mrtr).
type required struct {
	Requests map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
	State json.RawMessage `json:"requestState"`
}

// requires reports whether a result requires input.
func requires(result json.RawMessage) bool {
	is := false
	if rawjson.IsObject(result) {
		rawjson.Members(result, func(key []byte, value json.RawMessage) bool {
			if string(key) == "resultType" {
				is = rawjson.String(value) == "input_required"
			}
			return !is
		})
	}
	return is
}

// given counts the answers of a client that a request is to be repeated with: they stay in
// memory until it is answered.
type given struct {
	of   *turns.Shares
	line turns.Line
	size int64
}

func (g *given) hold(answer json.RawMessage) bool {
	n := int64(len(answer))
	if !g.of.Try(g.line, n) {
		return false
	}
	g.size += n
	return true
}

func (g *given) drop() {
	if g.size > 0 {
		g.of.Give(g.line, g.size)
	}
	g.size = 0
}

// fulfil asks a client of an older version for what a result requires, one thing after the
// other, and returns what the request is to be repeated with.
func (c *Capsule) fulfil(ctx context.Context, client peer.Client, result json.RawMessage, round int, given *given) (peer.Input, error) {
	given.drop() // what the request was repeated with last
	var need required
	if rawjson.Values(result) > maxRequired || json.Unmarshal(result, &need) != nil || len(need.Requests) > maxAsks {
		return peer.Input{}, fault.New(fault.ExecutionFailed, "%s requires input in a form that is not MCP's", c.tool.Name)
	}
	switch {
	case round == maxRounds:
		return peer.Input{}, fault.New(fault.ExecutionFailed, "%s required input %d times for one request", c.tool.Name, maxRounds)
	case len(need.Requests) == 0: // it says: try again
		if !wait(ctx, time.Duration(round)*100*time.Millisecond) {
			return peer.Input{}, fault.From(context.Cause(ctx))
		}
		return peer.Input{State: need.State}, nil
	case client == nil:
		return peer.Input{}, fault.New(fault.ExecutionFailed, "%s requires input of its client, and this one cannot be asked", c.tool.Name)
	}
	answers := make(map[string]json.RawMessage, len(need.Requests))
	for _, key := range slices.Sorted(maps.Keys(need.Requests)) {
		method := need.Requests[key].Method
		answer, err := c.askClient(ctx, client, method, need.Requests[key].Params)
		if err != nil {
			return peer.Input{}, fault.Wrap(fault.ExecutionFailed, nil, "%s requires the answer to %s, and its client did not give it: %v", c.tool.Name, method, err)
		}
		if !given.hold(answer) {
			return peer.Input{}, fault.New(fault.RateLimited, "%s requires the answer to %s, and there is no room for it beside other answers; try again", c.tool.Name, method)
		}
		answers[key] = answer
	}
	responses, err := json.Marshal(answers)
	if err != nil {
		return peer.Input{}, fault.New(fault.ExecutionFailed, "a client answered %s with something that is not JSON", c.tool.Name)
	}
	return peer.Input{Responses: responses, State: need.State}, nil
}

// askClient asks a client. A panic over what it is asked is an error.
func (c *Capsule) askClient(ctx context.Context, client peer.Client, method string, params json.RawMessage) (answer json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.log.Error("panic over what a capsule asked", "tool", c.tool.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("the request failed inside Orla; its log has the details")
		}
	}()
	switch method {
	case "sampling/createMessage", "elicitation/create", "roots/list":
		return client.Ask(ctx, method, params)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "it is not a request that clients take"}
}
