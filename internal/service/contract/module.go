package contract

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// ModuleRequest is the request to a WebAssembly module (SPEC-TOOLS 3.7).
type ModuleRequest struct {
	ContractVersion string        `json:"contract_version"`
	RequestID       string        `json:"request_id"`
	Namespace       string        `json:"namespace"`
	Tool            string        `json:"tool"`
	Input           string        `json:"input"` // the arguments as JSON, unchanged
	Capabilities    []string      `json:"capabilities"`
	RiskLevel       string        `json:"risk_level"`
	Runtime         ModuleRuntime `json:"runtime"`
	Auth            ModuleAuth    `json:"auth"`
	Context         Context       `json:"context"`
}

// ModuleRuntime has the limits of the call.
type ModuleRuntime struct {
	IsolationMode  string `json:"isolation_mode"`
	Timeout        string `json:"timeout"`
	MaxMemoryBytes int64  `json:"max_memory_bytes"`
	Fuel           int64  `json:"fuel"`
}

// ModuleAuth has the credentials of the call.
type ModuleAuth struct {
	Headers map[string]string `json:"headers"`
}

// Module adds the fields of the attempt to a request.
func (x *Exchange) Module(r ModuleRequest) ModuleRequest {
	said := x.Request()
	r.ContractVersion = Version
	r.RequestID, r.Namespace, r.Tool, r.Context = said.RequestID, x.tool.namespace, said.Tool, said.Context
	r.Input = string(said.Parameters)
	if r.Capabilities == nil {
		r.Capabilities = []string{}
	}
	if r.Auth.Headers == nil {
		r.Auth.Headers = map[string]string{}
	}
	return r
}

// JSON returns the request to send. It contains the headers.
func (r ModuleRequest) JSON() []byte { return encoded(r) }

// ModuleAnswer makes the call's answer from the output of a module, which must be one JSON object of
// the contract. Any other output is runtime_policy_invalid: the module has a bug, and a retry does
// not help.
func (x *Exchange) ModuleAnswer(body []byte) (peer.Answer, error) {
	var m object
	var r Response
	var refused *fault.Error
	if ended := x.work(len(body), func() {
		body = x.credentials.RedactBody(body)
		var err error
		if m, err = moduleMembers(body); err == nil {
			r, err = x.moduleResponse(m)
		}
		if err != nil {
			refused = x.violation(body, err)
			refused.Code = fault.RuntimePolicyInvalid
		}
	}); ended != nil {
		return peer.Answer{}, ended
	}
	if refused != nil {
		return peer.Answer{}, refused
	}
	if r.Err != nil {
		return details(m["error"]), r.Err
	}
	return x.Result(r)
}

// moduleMembers parses the one object of a module's output.
func moduleMembers(body []byte) (object, error) {
	m, err := members(body)
	if err != nil {
		if beginsJSON(body) {
			err = errText("something follows its first JSON value")
		}
		return nil, err
	}
	switch version, err := m.text("contract_version"); {
	case err != nil:
		return nil, err
	case version != Version:
		return nil, errText("its contract_version is not " + Version)
	}
	return m, nil
}

// moduleResponse reads a module's answer. It is strict: no module uses an older form.
func (x *Exchange) moduleResponse(m object) (Response, error) {
	status, err := m.text("status")
	if err != nil {
		return Response{}, err
	}
	r := Response{Status: status}
	switch status {
	case statusOK:
		r.Result = m["output"]
	case statusError:
		r.Err, err = x.moduleFailure(m["error"], "")
	case statusDenied:
		r.Err, err = x.moduleFailure(m["error"], fault.PermissionDenied)
	case "":
		err = errText("it has no status")
	default:
		err = errText("its status is not ok, error or denied")
	}
	return r, err
}

// moduleFailure reads the error of a module. Its reason is a word and its message a sentence; both
// are for people.
func (x *Exchange) moduleFailure(raw json.RawMessage, otherwise fault.Code) (*fault.Error, error) {
	if raw == nil && otherwise == "" {
		return nil, errText("its status is error, and it has no error")
	}
	f, err := x.failure(raw, otherwise)
	if err != nil || len(raw) == 0 || string(raw) == "null" {
		return f, err
	}
	m, err := members(raw)
	if err != nil {
		return nil, fmt.Errorf("its error: %w", err)
	}
	reason, err := m.text("reason")
	if err != nil {
		return nil, fmt.Errorf("its error: %w", err)
	}
	message, err := m.text("message")
	switch {
	case err != nil:
		return nil, fmt.Errorf("its error: %w", err)
	case message == "" || message == reason:
	case reason == "":
		f.Reason = x.shown(message, maxReason)
	default:
		f.Reason = x.shown(reason+": "+message, maxReason)
	}
	return f, nil
}

// details returns the details of an error, for the client to read.
func details(raw json.RawMessage) peer.Answer {
	m, err := members(raw)
	said := bytes.TrimSpace(m["details"])
	if err != nil || len(said) == 0 || string(said) == "null" {
		return peer.Answer{}
	}
	text := string(said)
	if said[0] == '"' {
		_ = json.Unmarshal(said, &text) // it was checked to be valid
	}
	return peer.Answer{Result: &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}}
}

// beginsJSON reports whether a body begins with a JSON value that is followed by something else.
func beginsJSON(body []byte) bool {
	var first json.RawMessage
	return !rawjson.Deeper(body, maxDepth) && !rawjson.Valid(body) && json.NewDecoder(bytes.NewReader(body)).Decode(&first) == nil
}
