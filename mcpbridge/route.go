package mcpbridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/recovered"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
	methodHeader  = "Mcp-Method"
	nameHeader    = "Mcp-Name"
	// firstStateless is the first protocol version without sessions.
	firstStateless = "2026-07-28"
)

// route picks the handler for a POST. The SDK has one for the eras with
// sessions and one for the stateless era; both stand before one server
// (SPEC G2).
func (h *HTTP) route(r *http.Request, body []byte) http.Handler {
	switch {
	case r.Header.Get(versionHeader) >= firstStateless:
		return h.newest
	case r.Header.Get(sessionHeader) != "":
		return h.stateful
	}
	// Neither header: an initialize, a request of the new era that lacks its
	// header, or a call without a session, as from curl.
	var peek struct {
		Method string `json:"method"`
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	err := json.Unmarshal(body, &peek)
	_, newEra := peek.Params.Meta[mcp.MetaKeyProtocolVersion]
	if err == nil && peek.Method == methodInitialize && !newEra {
		return h.stateful
	}
	return h.newest
}

// largeEvent is the size from which an answer goes out as a JSON body, which
// is a client's to bound, rather than as an event: the Python SDK takes events
// of 1 MiB at most.
const largeEvent = 512 << 10

// explainer stands between the SDK and the client of a POST. It turns plain-text
// refusals into JSON-RPC errors that name the request they answer, gives every
// error a code (SPEC G1), and sends a large answer as JSON.
type explainer struct {
	*response
	body      []byte // of the request
	explained bool
	asJSON    bool // the one answer was sent as JSON
	failed    bool // an error was sent
	broken    bool // by a panic: nothing follows
	log       *slog.Logger
	standIns  *standIns

	first func() // is called before anything is sent; may be nil
}

// WriteHeader takes over when it is a plain-text refusal.
func (e *explainer) WriteHeader(status int) {
	defer recovered.To(e.log, "answer a POST", e.fail)
	if e.broken {
		return
	}
	e.begin()
	if status != http.StatusBadRequest || !strings.HasPrefix(e.Header().Get("Content-Type"), "text/plain") {
		e.response.WriteHeader(status)
		return
	}
	e.explained = true
	e.Header().Del("X-Content-Type-Options")
}

// fail answers after a panic. The SDK writes in a goroutine that recovers nothing, and
// ends the handler when Write returns.
func (e *explainer) fail(any) {
	e.broken, e.failed = true, true
	answer := errorOf(idOf(e.body), internalError())
	switch {
	case !e.begun():
		writeJSON(e.response, http.StatusInternalServerError, string(answer))
	case isEventStream(e.Header()):
		_, _ = fmt.Fprintf(e.response, "event: message\ndata: %s\n\n", answer) // a client that left needs none
	}
}

// errPanicked is why nothing of an answer is written any more.
var errPanicked = errors.New("a panic over the answer")

// Write passes on what is no refusal, and answers in JSON what is.
func (e *explainer) Write(p []byte) (n int, err error) {
	defer recovered.To(e.log, "answer a POST", func(p any) {
		e.fail(p)
		n, err = 0, errPanicked
	})
	if e.broken {
		return 0, errPanicked
	}
	e.begin()
	if e.explained {
		e.refuse(strings.TrimSpace(string(p)))
		return len(p), nil
	}
	if e.asJSON {
		return len(p), nil // nothing follows the one answer
	}
	frame, data, end := unframe(p)
	e.failed = e.failed || isError(data)
	message, changed := e.standIns.replaced(data)
	if fixed := withCode(data); fixed != nil {
		message, changed = parts{fixed}, true
	}
	if len(frame) > 0 && message.size() >= largeEvent && e.alone() {
		e.asJSON = true
		return len(p), e.answer(message)
	}
	if !changed {
		return e.response.Write(p)
	}
	return len(p), e.writeAll(slices.Concat(parts{frame}, message, parts{end}))
}

func (e *explainer) begin() {
	if e.first != nil {
		e.first()
	}
}

// alone reports whether the answer is all that the response will hold.
func (e *explainer) alone() bool {
	return !e.begun() && !bytes.HasPrefix(bytes.TrimLeft(e.body, " \t\r\n"), []byte("["))
}

// unframe takes the data out of an event, as the SDK writes it.
func unframe(p []byte) (frame, data, end []byte) {
	if !bytes.HasPrefix(p, []byte("event: ")) {
		return nil, p, nil
	}
	i := bytes.Index(p, []byte("\ndata: "))
	if i < 0 || !bytes.HasSuffix(p, []byte("\n\n")) {
		return nil, p, nil
	}
	i += len("\ndata: ")
	return p[:i], p[i : len(p)-2], p[len(p)-2:]
}

// isError reports whether data is an error response, as the SDK writes it.
func isError(data []byte) bool {
	const near = 512 // the error's code comes behind version and id
	return bytes.Contains(data[:min(len(data), near)], []byte(`"error":{"code":`))
}

// withCode returns the error response that should stand for data, or nil when
// data is no error response or a good one.
func withCode(data []byte) []byte {
	if !isError(data) {
		return nil
	}
	msg, err := jsonrpc.DecodeMessage(data)
	if err != nil {
		return nil
	}
	resp, ok := msg.(*jsonrpc.Response)
	if !ok || resp.Error == nil {
		return nil
	}
	fixed, err := jsonrpc.EncodeMessage(&jsonrpc.Response{ID: resp.ID, Error: presentable(resp.Error)})
	if err != nil || bytes.Equal(fixed, data) {
		return nil
	}
	return fixed
}

// refuse answers what the SDK refused with text.
func (e *explainer) refuse(text string) {
	id, code, text := diagnose(e.body, text)
	switch {
	case code != jsonrpc.CodeMethodNotFound:
		writeError(e.response, http.StatusBadRequest, id, code, text)
	case len(id) > 0: // as the older eras have it: the transport did its part
		writeError(e.response, http.StatusOK, id, code, text)
	default: // a notification that nobody knows is nobody's trouble
		e.Header().Del("Content-Type")
		e.response.WriteHeader(http.StatusAccepted)
	}
}

// noJSON is why a body is refused.
const noJSON = "the body is not valid JSON"

// diagnose finds out what was wrong with a body that the SDK refused with text.
func diagnose(body []byte, text string) (id json.RawMessage, code int64, _ string) {
	if !json.Valid(body) {
		return nil, jsonrpc.CodeParseError, noJSON
	}
	var e envelope
	_ = json.Unmarshal(body, &e) // a batch has no id of its own
	switch {
	case strings.Contains(text, "unsupported") && e.Method != "":
		return e.ID, jsonrpc.CodeMethodNotFound, "method not found: " + e.Method
	case strings.Contains(text, `missing required "params"`):
		return e.ID, jsonrpc.CodeInvalidParams, `missing required "params"`
	}
	return e.ID, jsonrpc.CodeInvalidRequest, text
}
