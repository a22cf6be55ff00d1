package remote

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
)

// The headers that 2026-07-28 has each request say again (basic/transports/streamable-http).
const (
	headerMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
	headerParam  = "Mcp-Param-"
)

// look reads of a request's params what the transport says again.
func (m *message) look() {
	if !rawjson.IsObject(m.params) {
		return
	}
	var parent, state string
	rawjson.Members(m.params, func(key string, value json.RawMessage) bool {
		switch {
		case key == "name", key == "uri" && m.method == "resources/read":
			m.name = decoded(value)
		case key == "arguments":
			m.args = value
		case key == "_meta" && rawjson.IsObject(value):
			rawjson.Members(value, func(key string, value json.RawMessage) bool {
				switch key {
				case trace.ParentKey:
					parent = rawjson.String(value)
				case trace.StateKey:
					state = rawjson.String(value)
				case "io.modelcontextprotocol/protocolVersion":
					m.version = rawjson.String(value)
				}
				return true
			})
		}
		return true
	})
	m.at, _ = trace.Parse(parent, state)
}

// decoded is a string of JSON, with escapes or without; "" for anything else.
func decoded(value json.RawMessage) (text string) {
	if text = rawjson.String(value); text == "" {
		_ = json.Unmarshal(value, &text) // what is not a string has no name
	}
	return text
}

// headers writes what 2026-07-28 has a request say again.
func (s *session) headers(to http.Header, m message) {
	to.Set(headerVersion, m.version)
	to.Set(headerMethod, m.method)
	switch m.method {
	case "tools/call", "prompts/get", "resources/read":
		to.Set(headerName, encoded(m.name))
	}
	if m.method != "tools/call" {
		return
	}
	s.mu.Lock()
	params := s.params[m.name]
	s.mu.Unlock()
	for _, p := range params {
		if text, ok := at(m.args, p.path); ok {
			to.Set(headerParam+p.header, encoded(text))
		}
	}
}

// encoded is a text as the value of a header.
func encoded(text string) string {
	plain := strings.TrimSpace(text) == text && (!strings.HasPrefix(text, "=?base64?") || !strings.HasSuffix(text, "?="))
	for i := range len(text) {
		plain = plain && (text[i] >= ' ' && text[i] <= '~' || text[i] == '\t')
	}
	if plain {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// param is an argument of a tool's that stands in a header as well.
type param struct {
	path   []string
	header string
}

// at is the argument at a path as a header says it. It is absent where there is none,
// or null.
func at(args json.RawMessage, path []string) (text string, ok bool) {
	for _, name := range path {
		var found json.RawMessage
		if !rawjson.IsObject(args) {
			return "", false
		}
		rawjson.Members(args, func(key string, value json.RawMessage) bool {
			if key == name {
				found = value
			}
			return true
		})
		if args = found; args == nil {
			return "", false
		}
	}
	switch args[0] {
	case '"':
		return decoded(args), true
	case '{', '[', 'n':
		return "", false
	}
	return string(args), true
}

// learn notes which arguments of the tools in an answer to tools/list stand in headers
// as well. A page adds to those before it.
func (s *session) learn(answer []byte) {
	if !bytes.Contains(answer, []byte("x-mcp-header")) {
		return
	}
	var list struct {
		Result struct {
			Tools []struct {
				Name  string          `json:"name"`
				Input json.RawMessage `json:"inputSchema"`
			} `json:"tools"`
		} `json:"result"`
	}
	if json.Unmarshal(answer, &list) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.params == nil {
		s.params = map[string][]param{}
	}
	for _, tool := range list.Result.Tools {
		const deepest = 32
		if params := paramsOf(tool.Input, nil, deepest); len(params) > 0 {
			s.params[tool.Name] = params
		} else {
			delete(s.params, tool.Name)
		}
	}
}

// isToken reports whether a text can be in the name of a header (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// paramsOf are the annotated properties of a schema. Which annotations are good is
// found out where the tool is listed.
func paramsOf(schema json.RawMessage, path []string, deepest int) (found []param) {
	var of struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Header     json.RawMessage            `json:"x-mcp-header"`
	}
	if deepest == 0 || !bytes.Contains(schema, []byte("x-mcp-header")) || json.Unmarshal(schema, &of) != nil {
		return nil
	}
	if header := decoded(of.Header); len(path) > 0 && isToken(header) {
		found = append(found, param{path, header})
	}
	for name, property := range of.Properties {
		found = append(found, paramsOf(property, append(slices.Clip(path), name), deepest-1)...)
	}
	return found
}
