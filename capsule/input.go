package capsule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/fault"
	"github.com/orla-project/orla/internal/peer"
	"github.com/orla-project/orla/internal/rawjson"
)

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

// fulfil asks a client of an older version for what a result requires, and returns
// what the request is to be repeated with.
func (c *Capsule) fulfil(ctx context.Context, client peer.Client, result json.RawMessage, round int) (peer.Input, error) {
	var need required
	if err := json.Unmarshal(result, &need); err != nil || len(need.Requests) > maxAsks {
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asking sync.WaitGroup
	var mu sync.Mutex // guards the two that follow
	answers := make(map[string]json.RawMessage, len(need.Requests))
	var failed error
	for key, request := range need.Requests {
		asking.Go(func() {
			answer, err := c.askClient(ctx, client, request.Method, request.Params)
			mu.Lock()
			defer mu.Unlock()
			if answers[key] = answer; err != nil && failed == nil {
				failed = fault.Wrap(fault.ExecutionFailed, nil, "%s requires the answer to %s, and its client did not give it: %v", c.tool.Name, request.Method, err)
				cancel()
			}
		})
	}
	asking.Wait()
	if failed != nil {
		return peer.Input{}, failed
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
