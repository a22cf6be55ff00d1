package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// The headers of Streamable HTTP, in their canonical form.
const (
	SessionHeader = "Mcp-Session-Id"
	VersionHeader = "Mcp-Protocol-Version"
	MethodHeader  = "Mcp-Method"
	NameHeader    = "Mcp-Name"
	paramHeader   = "Mcp-Param-"
)

// HeaderParam is an argument of a tool that an HTTP header repeats, or that contains such arguments.
type HeaderParam struct {
	path   string // in dots; "" of all arguments
	header string // its name; "" for none
	Keys   []string
	of     map[string]*HeaderParam // the arguments in it, by key
}

// maxHeaderDepth is how deeply an argument that a header repeats may be nested: the arguments of a
// call are read once for each level.
const maxHeaderDepth = 16

// headerSchema is the part of a schema that says which arguments headers repeat.
type headerSchema struct {
	Type       json.RawMessage            `json:"type"`
	Header     json.RawMessage            `json:"x-mcp-header"`
	Properties map[string]json.RawMessage `json:"properties"`
}

// HeaderParamsIn returns the arguments that headers repeat according to an input schema; nil for
// none.
func HeaderParamsIn(schema json.RawMessage) (*HeaderParam, error) {
	return headerParamsOf(schema, nil, map[string]bool{})
}

func headerParamsOf(schema json.RawMessage, path []string, seen map[string]bool) (*HeaderParam, error) {
	var s headerSchema
	if !rawjson.IsObject(schema) || !bytes.Contains(schema, []byte("x-mcp-header")) {
		return nil, nil
	}
	at := strings.Join(path, ".")
	if len(path) > maxHeaderDepth {
		return nil, fmt.Errorf("property %q: x-mcp-header fits only %d levels", at, maxHeaderDepth)
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return nil, fmt.Errorf("property %q: %w", at, err)
	}
	p := &HeaderParam{path: at, of: map[string]*HeaderParam{}}
	if s.Header != nil && len(path) > 0 {
		name, ok := TextOf(s.Header)
		switch {
		case !slices.Contains([]string{"string", "integer", "boolean"}, rawjson.String(s.Type)):
			return nil, fmt.Errorf("property %q: x-mcp-header fits only a string, an integer or a boolean", at)
		case !ok || !isToken(name):
			return nil, fmt.Errorf("property %q: x-mcp-header must be a header name", at)
		case seen[strings.ToLower(name)]:
			return nil, fmt.Errorf("property %q: the header %s is taken", at, name)
		}
		seen[strings.ToLower(name)] = true
		p.header = name
	}
	for _, key := range slices.Sorted(maps.Keys(s.Properties)) {
		in, err := headerParamsOf(s.Properties[key], append(path, key), seen)
		if err != nil {
			return nil, err
		}
		if in != nil {
			p.Keys, p.of[key] = append(p.Keys, key), in
		}
	}
	if p.header == "" && len(p.Keys) == 0 {
		return nil, nil
	}
	return p, nil
}

// isToken reports whether a text is a token of HTTP (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// NamedBy returns the member of params that the header Mcp-Name repeats. named is false if the method
// has none.
func (m *Message) NamedBy() (raw json.RawMessage, named bool) {
	switch m.Method {
	case MethodCall, MethodGetPrompt:
		return m.Params.Name, true
	case MethodRead:
		return m.Params.URI, true
	}
	return nil, false
}

// Check compares headers with the arguments that they repeat. arg is the value of p.
func (p *HeaderParam) Check(headers http.Header, arg json.RawMessage) *jsonrpc.Error {
	if p == nil {
		return nil
	}
	if p.header != "" {
		if refused := p.checkOne(headers, arg); refused != nil {
			return refused
		}
	}
	if len(p.Keys) == 0 {
		return nil
	}
	given := map[string]json.RawMessage{}
	if plain, _ := PlainObject(arg); plain != nil {
		rawjson.Members(plain, func(key []byte, value json.RawMessage) bool {
			if p.of[string(key)] != nil {
				given[string(key)] = value
			}
			return true
		})
	}
	for _, key := range p.Keys {
		if refused := p.of[key].Check(headers, given[key]); refused != nil {
			return refused
		}
	}
	return nil
}

// checkOne compares one argument with its header. arg is nil if the argument is missing.
func (p *HeaderParam) checkOne(headers http.Header, arg json.RawMessage) *jsonrpc.Error {
	name, path := paramHeader+p.header, p.path
	given := headers.Get(name)
	if arg == nil || string(arg) == "null" {
		if given != "" {
			return Mismatch("header mismatch: unexpected %s header for absent or null parameter %q", name, path)
		}
		return nil
	}
	if given == "" {
		return Mismatch("header mismatch: missing %s header for parameter %q", name, path)
	}
	text, ok := headerText(given)
	switch {
	case !ok:
		return Mismatch("header mismatch: %s header contains invalid Base64 encoding", name)
	case arg[0] == '{' || arg[0] == '[':
		return Mismatch("header mismatch: %s header present but body parameter %q is not a primitive type", name, path)
	case !repeats(text, arg):
		return Mismatch("header mismatch: %s header value '%s' does not match body value", name, Brief(given))
	}
	return nil
}

// repeats reports whether the text of a header is equal to an argument.
func repeats(text string, arg json.RawMessage) bool {
	if arg[0] == '"' {
		said, ok := TextOf(arg)
		return ok && said == text
	}
	if arg[0] == 't' || arg[0] == 'f' {
		return string(arg) == text
	}
	const exact = 1 << 53
	a, err := strconv.ParseFloat(string(arg), 64)
	b, also := strconv.ParseFloat(text, 64)
	return err == nil && also == nil && a == b && a == math.Trunc(a) && math.Abs(a) < exact
}

// headerText returns the text of a header, which may be in base64. It reports false if the base64 is
// invalid.
func headerText(given string) (text string, ok bool) {
	encoded, marked := strings.CutPrefix(given, "=?base64?")
	encoded, ends := strings.CutSuffix(encoded, "?=")
	if !marked || !ends {
		return given, true
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	return string(raw), err == nil
}

// Mismatch returns the error for headers that differ from their message.
func Mismatch(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: mcp.CodeHeaderMismatch, Message: fmt.Sprintf(format, args...)}
}

// FirstHeader returns the first value of a header. Unlike http.Header.Get it does not make the name
// canonical: it has to be.
func FirstHeader(headers http.Header, canonical string) string {
	if values := headers[canonical]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// JSONType is the Content-Type that a message must have.
const JSONType = "application/json"

// IsJSON reports whether a Content-Type is JSON.
func IsJSON(given string) bool {
	if given == JSONType { // usually they are equal
		return true
	}
	media, _, err := mime.ParseMediaType(given)
	return err == nil && media == JSONType
}

// Accepts reports whether the values of an Accept header allow JSON, and event streams.
func Accepts(values []string) (json, events bool) {
	for _, value := range values {
		for one := range strings.SplitSeq(value, ",") {
			media, _, _ := strings.Cut(one, ";")
			switch strings.ToLower(strings.TrimSpace(media)) {
			case "application/json", "application/*":
				json = true
			case "text/event-stream", "text/*":
				events = true
			case "*/*":
				return true, true
			}
		}
	}
	return json, events
}
