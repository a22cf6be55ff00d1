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

// The headers that repeat parts of a request in 2026-07-28 (basic/transports/streamable-http).
const (
	headerMethod = "Mcp-Method"
	headerName   = "Mcp-Name"
	headerParam  = "Mcp-Param-"
)

// look reads the parts of a request's params that headers repeat.
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

// decoded returns the text of a JSON string; "" for anything else.
func decoded(value json.RawMessage) (text string) {
	if text = rawjson.String(value); text == "" {
		_ = json.Unmarshal(value, &text) // an error leaves text empty
	}
	return text
}

// headers sets the headers that 2026-07-28 requires for a request.
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

// encoded returns a text as the value of a header.
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

// param says which arguments of a tool are repeated in headers: the argument itself, or members of
// it. A nil param has none.
type param struct {
	header string // "" for none
	in     map[string]*param
}

// deepest bounds how deep in the arguments a param may be.
const deepest = 8

const (
	// maxAnnotated bounds what is kept of a list, in bytes. It is enough for one header for each of 10
	// 000 tools, the largest number that is served.
	maxAnnotated = 8 << 20
	// perParam is how many bytes a param counts, in addition to its name and header.
	perParam = 256
)

// annotations are the params of the tools on one page of a list.
type annotations struct {
	tools map[string]*param // by tool name; nil for a tool without params
	room  int               // bytes left
	full  bool              // a param did not fit
}

// take reports whether there is room for a param with texts bytes of text, and takes it.
func (a *annotations) take(texts int) bool {
	a.full = a.full || a.room < perParam+texts
	if a.full {
		return false
	}
	a.room -= perParam + texts
	return true
}

// add adds a tool of the list.
func (a *annotations) add(item json.RawMessage) {
	var tool struct {
		Name  string          `json:"name"`
		Input json.RawMessage `json:"inputSchema"`
	}
	if json.Unmarshal(item, &tool) != nil || !a.take(len(tool.Name)) {
		return
	}
	a.tools[tool.Name] = a.paramOf(tool.Input, deepest)
}

// paramOf returns the params in an input schema; nil for none. Whether they are valid is checked
// where the tool is listed.
func (a *annotations) paramOf(schema json.RawMessage, levels int) *param {
	if levels == 0 || a.full || !rawjson.IsObject(schema) || !bytes.Contains(schema, []byte("x-mcp-header")) {
		return nil
	}
	p := &param{}
	rawjson.AllMembers(schema, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "x-mcp-header":
			if header := decoded(value); isToken(header) && a.take(len(header)) {
				p.header = header
			}
		case "properties":
			rawjson.AllMembers(value, func(name []byte, property json.RawMessage) bool {
				if below := a.paramOf(property, levels-1); below != nil && a.take(len(name)) {
					if p.in == nil {
						p.in = map[string]*param{}
					}
					p.in[string(name)] = below
				}
				return !a.full
			})
		}
		return !a.full
	})
	if p.header == "" && len(p.in) == 0 {
		return nil
	}
	return p
}

// write sets the headers of arguments. It reads the arguments once, however many headers there are.
// An argument that is missing or null has no header.
func (p *param) write(to http.Header, args json.RawMessage) {
	if p == nil || len(p.in) == 0 || !rawjson.IsObject(args) {
		return
	}
	found := map[string]json.RawMessage{} // the last one of each name
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

// scalar returns an argument as the value of a header.
func scalar(value json.RawMessage) (text string, ok bool) {
	switch value[0] {
	case '"':
		return decoded(value), true
	case '{', '[', 'n':
		return "", false
	}
	return string(value), true
}

// learn records which arguments of the tools in an answer to tools/list are repeated in headers. A
// first page starts a new list; the params of the previous list are still used for tools on pages
// that have not come yet.
func (s *session) learn(m message, answer []byte) {
	first, last := len(rawjson.Get(m.params, "cursor")) == 0, true
	s.mu.Lock()
	page := annotations{tools: map[string]*param{}, room: maxAnnotated - s.annotated}
	s.mu.Unlock()
	if first {
		page.room = maxAnnotated
	}
	room, annotated := page.room, bytes.Contains(answer, []byte("x-mcp-header"))
	result := rawjson.Get(answer, "result")
	if rawjson.IsObject(result) {
		rawjson.Members(result, func(key []byte, value json.RawMessage) bool {
			switch string(key) {
			case "nextCursor":
				last = decoded(value) == ""
			case "tools":
				rawjson.Elements(value, func(item json.RawMessage) bool {
					if annotated && rawjson.IsObject(item) {
						page.add(item)
					}
					return !page.full
				})
			}
			return true
		})
	}
	if page.full {
		s.say("the server lists more arguments that stand in headers than Orla keeps (%d bytes of them); the headers of the others are not sent", maxAnnotated)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.older, s.params, s.annotated = s.params, map[string]*param{}, 0
	}
	s.annotated += room - page.room
	maps.Copy(s.params, page.tools)
	if last {
		s.older = nil
	}
}

// isToken reports whether a text is valid in the name of a header (RFC 9110, 5.6.2).
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}
