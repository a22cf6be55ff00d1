package clients

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// maxRequired bounds the JSON values in an answer that requires input: decoded, a value takes
// many times its bytes.
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

// Requires reports whether a result requires input.
func Requires(result json.RawMessage) bool {
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

// Inputs asks clients of older protocol versions for the input that a capsule requires. Its
// methods may be called from any goroutine.
type Inputs struct {
	tool string // the capsule's name
	log  *slog.Logger
	room *turns.Shares // of the bytes of answers
}

// NewInputs returns Inputs for a capsule whose messages have maxMessage bytes at most.
func NewInputs(tool string, maxMessage int64, log *slog.Logger) *Inputs {
	return &Inputs{tool: tool, log: log, room: turns.NewShares(roomForLargest(maxMessage))}
}

// Given counts the bytes of the client's answers with which a request is repeated. They stay
// in memory until the request is answered.
type Given struct {
	room  *turns.Shares
	owner turns.Owner
	size  int64
}

// Given returns the Given of one request. The caller must Drop it.
func (in *Inputs) Given(owner turns.Owner) *Given { return &Given{room: in.room, owner: owner} }

func (g *Given) keep(answer json.RawMessage) bool {
	n := int64(len(answer))
	if !g.room.Try(g.owner, n) {
		return false
	}
	g.size += n
	return true
}

// Drop gives back the room of the answers.
func (g *Given) Drop() {
	if g.size > 0 {
		g.room.Give(g.owner, g.size)
	}
	g.size = 0
}

// Fulfil asks a client of an older version for the input that a result requires, one question
// after the other, and returns the input with which the request is to be repeated.
func (in *Inputs) Fulfil(ctx context.Context, client peer.Client, result json.RawMessage, round int, given *Given) (peer.Input, error) {
	given.Drop() // of the previous round
	var need required
	if rawjson.Values(result) > maxRequired || json.Unmarshal(result, &need) != nil || len(need.Requests) > maxQuestions {
		return peer.Input{}, fault.New(fault.ExecutionFailed, "%s requires input in a form that is not MCP's", in.tool)
	}
	switch {
	case round == maxRounds:
		return peer.Input{}, fault.New(fault.ExecutionFailed, "%s required input %d times for one request", in.tool, maxRounds)
	case len(need.Requests) == 0: // it asks for a repetition only
		if !pace.Sleep(ctx, time.Duration(round)*100*time.Millisecond) {
			return peer.Input{}, fault.From(context.Cause(ctx))
		}
		return peer.Input{State: need.State}, nil
	case client == nil:
		return peer.Input{}, fault.New(fault.ExecutionFailed, "%s requires input of its client, and this one cannot be asked", in.tool)
	}
	answers := make(map[string]json.RawMessage, len(need.Requests))
	for _, key := range slices.Sorted(maps.Keys(need.Requests)) {
		method := need.Requests[key].Method
		answer, err := in.ask(ctx, client, method, need.Requests[key].Params)
		if err != nil {
			return peer.Input{}, fault.Wrap(fault.ExecutionFailed, nil, "%s requires the answer to %s, and its client did not give it: %v", in.tool, method, err)
		}
		if !given.keep(answer) {
			return peer.Input{}, fault.New(fault.RateLimited, "%s requires the answer to %s, but other answers use all the memory for answers; try again", in.tool, method)
		}
		answers[key] = answer
	}
	responses, err := json.Marshal(answers)
	if err != nil {
		return peer.Input{}, fault.New(fault.ExecutionFailed, "a client answered %s with something that is not JSON", in.tool)
	}
	return peer.Input{Responses: responses, State: need.State}, nil
}

// ask asks a client. A panic while asking becomes an error.
func (in *Inputs) ask(ctx context.Context, client peer.Client, method string, params json.RawMessage) (answer json.RawMessage, err error) {
	defer func() {
		if p := recover(); p != nil {
			in.log.Error("panic while handling a request of a capsule", "tool", in.tool, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			err = errors.New("the request failed inside Orla; its log has the details")
		}
	}()
	switch method {
	case "sampling/createMessage", "elicitation/create", "roots/list":
		return client.Ask(ctx, method, params)
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "it is not a request that clients take"}
}
