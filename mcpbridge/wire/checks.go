package wire

import (
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// CheckVersion returns an error if the protocol version in the headers is not that in the message.
func CheckVersion(h http.Header, m *Message, newest bool) *jsonrpc.Error {
	if !m.Asks() || !newest && m.Params.Meta == nil {
		return nil
	}
	given := FirstHeader(h, VersionHeader)
	said, _ := TextOf(rawjson.Get(m.Params.Meta, mcp.MetaKeyProtocolVersion))
	switch {
	case said == "" && !newest:
	case given == "":
		return Mismatch("%s header is required for requests carrying %q", VersionHeader, mcp.MetaKeyProtocolVersion)
	case said == "":
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: `missing or invalid _meta field "` + mcp.MetaKeyProtocolVersion + `"`}
	case given != said:
		return Mismatch("%s header %q does not match request %s %q", VersionHeader, Brief(given), mcp.MetaKeyProtocolVersion, Brief(said))
	}
	return nil
}

// CheckNames returns an error if the headers of a message of the stateless era name another method, tool, prompt or resource than
// the message (2026-07-28, basic/transports); otherwise the name in the message, if it has one.
func CheckNames(h http.Header, m *Message) (name string, refused *jsonrpc.Error) {
	if m.Answers() {
		return "", nil
	}
	switch given := FirstHeader(h, MethodHeader); {
	case given == "":
		return "", Mismatch("missing required Mcp-Method header")
	case given != m.Method:
		return "", Mismatch("header mismatch: Mcp-Method header value '%s' does not match body value '%s'", Brief(given), Brief(m.Method))
	}
	raw, named := m.NamedBy()
	if !named {
		return "", nil
	}
	name, ok := TextOf(raw)
	given := FirstHeader(h, NameHeader)
	switch decoded, plain := headerText(given); {
	case given == "":
		return "", Mismatch("missing required Mcp-Name header for method %q", m.Method)
	case !ok:
		return "", Mismatch("failed to extract name from parameters for method %q", m.Method)
	case given != name && (!plain || decoded != name):
		return "", Mismatch("header mismatch: Mcp-Name header value '%s' does not match body value '%s'", Brief(given), Brief(name))
	}
	return name, nil
}

// StatusOf returns the HTTP status of a JSON-RPC error in the stateless era; 0 for most errors,
// which have the status of any answer.
func StatusOf(code int64) int {
	switch code {
	case jsonrpc.CodeMethodNotFound:
		return http.StatusNotFound
	case jsonrpc.CodeInvalidParams, mcp.CodeMissingRequiredClientCapabilities, mcp.CodeUnsupportedProtocolVersion:
		return http.StatusBadRequest
	}
	return 0
}
