package audited

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/audit"
)

// Request is for mcpbridge.Options.Audit. A request that cannot be recorded is refused, as a call is.
func (r Recorder) Request() (_ *peer.Noted, ended func(context.Context, *peer.Request, string), _ error) {
	if why := r.Log.Err(); why != nil {
		r.Log.Refused()
		return nil, nil, fault.Wrap(fault.NotReady, why, "the audit log cannot be written, and nothing is read without a line in it; the operator has to make room for it or to fix audit_log")
	}
	began := time.Now()
	return &peer.Noted{Decision: peer.Decision{Verdict: audit.None}}, func(ctx context.Context, req *peer.Request, outcome string) {
		line := audit.Request{
			Method: req.Method, Caller: req.Caller, Acting: audit.Acting{Agent: rules.AgentIn(req.Meta), Task: req.Task},
			Noted: *req.Noted, Outcome: outcome, Took: time.Since(began), Input: req.Input.Responses,
		}
		ask(&line, req.Params)
		if t := trace.From(ctx); !t.IsZero() {
			line.Trace = t.TraceID()
		}
		record := func() { r.Log.RecordRequest(&line) }
		if size := len(line.Args) + len(line.Input); size < turns.Heavy || turns.AccountOf(ctx).Work(ctx, size, record) != nil {
			record()
		}
	}, nil
}

// ask notes what params ask for. It finds what peers find: also what has a name with escapes.
func ask(line *audit.Request, params json.RawMessage) {
	of := members(params)
	switch line.Method {
	case "prompts/get":
		line.Prompt, line.Args = textOf(of["name"]), of["arguments"]
	case "completion/complete":
		ref := members(of["ref"])
		line.Prompt, line.URI, line.Args = textOf(ref["name"]), textOf(ref["uri"]), of["argument"]
	default:
		line.URI = textOf(of["uri"])
	}
	if peer.IsOwn(line.URI) { // who has the name of an answer that Orla keeps may read it
		sum := sha256.Sum256([]byte(line.URI))
		line.URI = peer.OwnScheme + "sha256:" + hex.EncodeToString(sum[:8])
	}
}

// members returns the members of an object that may say what is asked for.
func members(object json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	if !rawjson.IsObject(object) {
		return all
	}
	rawjson.AllMembers(object, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "uri", "name", "ref", "argument", "arguments":
			all[string(key)] = value
		}
		return true
	})
	return all
}

// textOf returns a text; what is none, as it was sent.
func textOf(value json.RawMessage) (text string) {
	if json.Unmarshal(value, &text) != nil {
		return string(value)
	}
	return text
}
