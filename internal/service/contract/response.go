package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

// The statuses that end a call. Any other status means that the call goes on (SPEC-TOOLS 3.4).
const (
	statusSuccess = "success"
	statusOK      = "ok" // lenient (SPEC-TOOLS 2.2)
	statusError   = "error"
	statusDenied  = "denied" // lenient
)

// Response is a valid envelope (SPEC-TOOLS 2.2).
type Response struct {
	// Status is the service's own text, never empty.
	Status string
	// Result is the result; nil if there is none.
	Result json.RawMessage
	// Err is non-nil exactly if the service reports that the call has failed.
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

// Failed returns the response for a service that has failed in another way.
func Failed(f *fault.Error) Response { return Response{Status: statusError, Err: f} }

// Decode reads an envelope strictly. The error says how body violates the contract: it is
// execution_failed, and a retry does not help.
func (x *Exchange) Decode(body []byte) (r Response, err error) {
	if ended := x.work(len(body), func() { r, err = x.decode(body) }); ended != nil {
		return Response{}, ended
	}
	return r, err
}

func (x *Exchange) decode(body []byte) (Response, error) {
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

// sniff reads an envelope from a body that may also be other data (SPEC-TOOLS 3.1). The request did
// not contain the call's id, so a request_id in the answer is not checked.
func (x *Exchange) sniff(m object) (r Response, is bool, err error) {
	status, err := m.text("status")
	if err != nil {
		return Response{}, false, nil //nolint:nilerr // it is other data
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

// read reads an envelope without checking its request_id.
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

// failure reads an envelope's error. A code of the service's own is passed on, as is the service's
// word on retries (SPEC-TOOLS 4.1).
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
	code = cmp.Or(code, string(otherwise))
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

// Shown returns a text of a service without secrets, shortened.
func (x *Exchange) Shown(text string) string { return x.shown(text, maxQuote) }

const (
	maxReason = 4 << 10 // bytes of a service's reason
	maxQuote  = 200     // bytes of a body that an error quotes
)

// shown returns a text of a service without secrets, with at most most bytes. The secrets are
// removed before the text is cut: redaction cannot find half a secret.
func (x *Exchange) shown(text string, most int) string {
	return brief.Cut(x.credentials.Redact(text), most)
}

// violation is the error for a body that violates the contract.
func (x *Exchange) violation(body []byte, err error) *fault.Error {
	return fault.New(fault.ExecutionFailed, "the answer of %s violates the tool contract: %v; it answered %s", x.tool.name, err, x.quote(body)).
		LoggedAs(fmt.Sprintf("the answer of %s violates the tool contract: %v", x.tool.name, err))
}

// quote returns the beginning of a body.
func (x *Exchange) quote(body []byte) string {
	const enough = 64 << 10 // much longer than a quote and than any secret
	text := strings.TrimSpace(string(body[:min(len(body), enough)]))
	if text == "" {
		return "nothing"
	}
	return fmt.Sprintf("%q", x.shown(strings.ToValidUTF8(text, "\uFFFD"), maxQuote))
}
