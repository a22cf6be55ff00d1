package mcpbridge

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	sessionHeader = "Mcp-Session-Id"
	versionHeader = "Mcp-Protocol-Version"
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
	if err == nil && peek.Method == "initialize" && !newEra {
		return h.stateful
	}
	return h.newest
}

// explainer turns the SDK's plain-text refusals of a POST into JSON-RPC
// errors that name the request they answer (SPEC G1). What the SDK says in
// JSON, it says right.
type explainer struct {
	http.ResponseWriter
	body      []byte
	stateless bool // the new era has its own HTTP statuses
	explained bool
}

// Unwrap serves http.ResponseController.
func (e *explainer) Unwrap() http.ResponseWriter { return e.ResponseWriter }

// WriteHeader takes over when it is a plain-text refusal.
func (e *explainer) WriteHeader(status int) {
	if status != http.StatusBadRequest || !strings.HasPrefix(e.Header().Get("Content-Type"), "text/plain") {
		e.ResponseWriter.WriteHeader(status)
		return
	}
	e.explained = true
	e.Header().Del("X-Content-Type-Options")
}

// Write passes on what is no refusal, and answers in JSON what is.
func (e *explainer) Write(p []byte) (int, error) {
	if !e.explained {
		return e.ResponseWriter.Write(p)
	}
	id, code, text := diagnose(e.body, strings.TrimSpace(string(p)))
	status := http.StatusBadRequest
	if len(id) > 0 && !e.stateless && code == jsonrpc.CodeMethodNotFound {
		status = http.StatusOK // as the older eras have it: the transport did its part
	}
	writeError(e.ResponseWriter, status, id, code, text)
	return len(p), nil
}

// diagnose finds out what was wrong with a body that the SDK refused with text.
func diagnose(body []byte, text string) (id json.RawMessage, code int64, _ string) {
	if !json.Valid(body) {
		return nil, jsonrpc.CodeParseError, "the body is no valid JSON"
	}
	var e envelope
	_ = json.Unmarshal(body, &e) // a batch has no id of its own
	switch {
	case strings.Contains(text, "unsupported") && e.Method != "":
		return e.ID, jsonrpc.CodeMethodNotFound, "method not found: " + e.Method
	case strings.Contains(text, "params"):
		return e.ID, jsonrpc.CodeInvalidParams, text
	}
	return e.ID, jsonrpc.CodeInvalidRequest, text
}
