package remote

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"strings"

	"github.com/orla-project/orla/internal/call/trace"
	"github.com/orla-project/orla/internal/mcp/rawjson"
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
	rawjson.Members(m.params, func(key []byte, value json.RawMessage) bool {
		switch {
		case string(key) == "name", string(key) == "uri" && m.method == "resources/read":
			m.name = decoded(value)
		case string(key) == "arguments":
			m.args = value
		case string(key) == "_meta" && rawjson.IsObject(value):
			rawjson.Members(value, func(key []byte, value json.RawMessage) bool {
				switch string(key) {
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
	p, listed := s.params[m.name]
	if !listed {
		p = s.older[m.name]
	}
	s.mu.Unlock()
	p.write(to, m.args)
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

// param is an argument of a tool, or all of them, that stands in a header as well, or
// has arguments in it that do. A nil one has none.
type param struct {
	header string // "" for none
	in     map[string]*param
}

// deepest is how deep in the arguments one may be that stands in a header.
const deepest = 8

// paramOf is what an input schema annotates, nil for nothing. Which annotations are
// good is found out where the tool is listed.
func paramOf(schema json.RawMessage, levels int) *param {
	if levels == 0 || !bytes.Contains(schema, []byte("x-mcp-header")) {
		return nil
	}
	p := &param{in: map[string]*param{}}
	members(schema, func(key string, value json.RawMessage) {
		switch key {
		case "x-mcp-header":
			if header := decoded(value); isToken(header) {
				p.header = header
			}
		case "properties":
			members(value, func(name string, property json.RawMessage) {
				if below := paramOf(property, levels-1); below != nil {
					p.in[name] = below
				}
			})
		}
	})
	return p
}

// members calls each with the members of what may be an object; with some of them
// twice where keys have escapes.
func members(raw json.RawMessage, each func(key string, value json.RawMessage)) {
	if rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		each(string(key), value)
		return true
	}) {
		return
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return
	}
	for key, value := range all {
		each(key, value)
	}
}

// write sets the headers of arguments, each of which is looked at once, however many
// headers there are. There is none for one that is not there, or null.
func (p *param) write(to http.Header, args json.RawMessage) {
	if p == nil || len(p.in) == 0 || !rawjson.IsObject(args) {
		return
	}
	found := map[string]json.RawMessage{} // the last of each name
	rawjson.Members(args, func(key []byte, value json.RawMessage) bool {
		if p.in[string(key)] != nil {
			found[string(key)] = value
		}
		return true
	})
	for name, value := range found {
		below := p.in[name]
		if text, ok := scalar(value); ok && below.header != "" {
			to.Set(headerParam+below.header, encoded(text))
		}
		below.write(to, value)
	}
}

// scalar is an argument as a header says it.
func scalar(value json.RawMessage) (text string, ok bool) {
	switch value[0] {
	case '"':
		return decoded(value), true
	case '{', '[', 'n':
		return "", false
	}
	return string(value), true
}

// learn notes which arguments of the tools in an answer to tools/list stand in headers
// as well. The first page makes those of the list before the older ones, which are good
// for tools on pages that are still to come.
func (s *session) learn(m message, answer []byte) {
	first := true
	if rawjson.IsObject(m.params) {
		members(m.params, func(key string, _ json.RawMessage) { first = first && key != "cursor" })
	}
	var list struct {
		Result struct {
			Tools []struct {
				Name  string          `json:"name"`
				Input json.RawMessage `json:"inputSchema"`
			} `json:"tools"`
		} `json:"result"`
	}
	last := true
	members(answer, func(key string, value json.RawMessage) {
		if key == "result" && rawjson.IsObject(value) {
			members(value, func(key string, value json.RawMessage) { last = last && (key != "nextCursor" || decoded(value) == "") })
		}
	})
	page := map[string]*param{}
	if bytes.Contains(answer, []byte("x-mcp-header")) && json.Unmarshal(answer, &list) == nil {
		for _, tool := range list.Result.Tools {
			page[tool.Name] = paramOf(tool.Input, deepest)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.older, s.params = s.params, map[string]*param{}
	}
	maps.Copy(s.params, page)
	if last {
		s.older = nil
	}
}

// isToken reports whether a text can be in the name of a header (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
