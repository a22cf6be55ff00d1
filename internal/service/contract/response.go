package contract

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

// The statuses that end a call. Whatever else a service says is not the end
// (SPEC-TOOLS 3.4).
const (
	statusSuccess = "success"
	statusOK      = "ok" // lenient (SPEC-TOOLS 2.2)
	statusError   = "error"
	statusDenied  = "denied" // lenient
)

// Response is an envelope that was understood (SPEC-TOOLS 2.2).
type Response struct {
	// Status is the service's word, never empty.
	Status string
	// Result is what the service gave; nil if that is nothing.
	Result json.RawMessage
	// Err is non-nil exactly when the service says that the call has failed.
	Err *fault.Error
}

// Terminal reports whether the response ends its call.
func (r Response) Terminal() bool {
	switch r.Status {
	case statusSuccess, statusOK, statusError, statusDenied:
		return true
	}
	return false
}

// Failed is the response of a service that has failed in another way.
func Failed(f *fault.Error) Response { return Response{Status: statusError, Err: f} }

// Decode reads an envelope strictly. The error says in what body violates the
// contract: it is execution_failed, and trying again does not help.
func (x *Exchange) Decode(body []byte) (Response, error) {
	body = x.credentials.RedactBody(body)
	m, err := members(body)
	if err != nil {
		return Response{}, x.violation(body, err)
	}
	id, err := m.text("request_id")
	switch {
	case err != nil:
	case id == "":
		err = errText("it has no request_id")
	case id != x.requestID:
		err = errText("its request_id is not this call's")
	}
	if err != nil {
		return Response{}, x.violation(body, err)
	}
	r, err := x.read(m)
	if err != nil {
		return Response{}, x.violation(body, err)
	}
	return r, nil
}

// sniff reads an envelope out of what may be one, or any data (SPEC-TOOLS 3.1).
// The service was not told the call's id: whatever request_id it gives is its own.
func (x *Exchange) sniff(m object) (r Response, is bool, err error) {
	status, err := m.text("status")
	if err != nil {
		return Response{}, false, nil //nolint:nilerr // then it is somebody's data
	}
	id, err := m.text("request_id")
	named := err == nil && id != ""
	switch status {
	case statusSuccess, statusOK:
		_, output := m.result()
		is = named && output
	case statusError:
		is = named || rawjson.IsObject(m["error"])
	case statusDenied:
		is = named
	}
	if !is {
		return Response{}, false, nil
	}
	r, err = x.read(m)
	return r, true, err
}

// read reads what an envelope says, leaving its request_id aside.
func (x *Exchange) read(m object) (Response, error) {
	status, err := m.text("status")
	if err != nil {
		return Response{}, err
	}
	r := Response{Status: status}
	switch status {
	case "":
		return Response{}, errText("it has no status")
	case statusSuccess, statusOK:
		r.Result, _ = m.result()
	case statusError:
		if _, given := m["error"]; !given {
			return Response{}, errText("its status is error, and it has no error")
		}
		r.Err, err = x.failure(m["error"], "")
	case statusDenied:
		r.Err, err = x.failure(m["error"], fault.PermissionDenied)
	}
	return r, err
}

// failure reads an envelope's error. A code of the service's own passes through,
// and so does its word on whether to try again (SPEC-TOOLS 4.1).
func (x *Exchange) failure(raw json.RawMessage, otherwise fault.Code) (*fault.Error, error) {
	m := object{}
	if len(raw) > 0 && string(raw) != "null" || otherwise == "" {
		var err error
		if m, err = members(raw); err != nil {
			return nil, fmt.Errorf("its error: %w", err)
		}
	}
	code, err := m.first("tool_code", "code")
	if err != nil {
		return nil, fmt.Errorf("its error: %w", err)
	}
	if code == "" {
		code = string(otherwise)
	}
	if code == "" {
		return nil, errText("its error has no tool_code")
	}
	parsed, ok := fault.Parse(code)
	if !ok {
		return nil, errText("its error's tool_code is not made of at most 64 letters, digits, ., _ and -")
	}
	reason, err := m.first("tool_reason", "reason")
	if err != nil {
		return nil, fmt.Errorf("its error: %w", err)
	}
	f := fault.New(parsed, "%s", x.shown(reason, maxReason))
	if reason == "" {
		f.Reason = fmt.Sprintf("%s failed, and gave no reason", x.tool.name)
	}
	switch retryable := m["retryable"]; string(retryable) {
	case "", "null":
	case "true", "false":
		f.Retry = new(string(retryable) == "true")
	default:
		return nil, errText("its error's retryable is neither true nor false")
	}
	f.Logged = x.tool.name + " gave this tool_code"
	return f, nil
}

// Shown is a text of a service without secrets, and not long.
func (x *Exchange) Shown(text string) string { return x.shown(text, maxQuote) }

const (
	maxReason = 4 << 10 // bytes of a service's reason
	maxQuote  = 200     // bytes of a body that are quoted
)

// shown is a text of a service without secrets, of so many bytes at most. The
// secrets go first: half of one could not be found any more.
func (x *Exchange) shown(text string, most int) string {
	return brief.Cut(x.credentials.Redact(text), most)
}

// violation is the fault of a body that is against the contract.
func (x *Exchange) violation(body []byte, err error) *fault.Error {
	f := fault.New(fault.ExecutionFailed, "the answer of %s violates the tool contract: %v; it answered %s", x.tool.name, err, x.quote(body))
	f.Logged = fmt.Sprintf("the answer of %s violates the tool contract: %v", x.tool.name, err)
	return f
}

// quote shows how a body begins.
func (x *Exchange) quote(body []byte) string {
	const enough = 64 << 10 // far more than is quoted, and than a secret is long
	text := strings.TrimSpace(string(body[:min(len(body), enough)]))
	if text == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", x.shown(strings.ToValidUTF8(text, "\uFFFD"), maxQuote))
}
