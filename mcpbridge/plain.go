package mcpbridge

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
)

// plainCall is a tools/call, or a tools/list, that asks for nothing unusual, so
// that it can be answered without the SDK: that decodes a message several times
// over, at a cost near that of starting a process, and encodes every tool anew
// for each list. Whatever is not plain goes the SDK's way; a test holds the two
// ways equal.
type plainCall struct {
	id     json.RawMessage // a string or an integer, as it came
	method string
	name   string          // of the tool; "" for a list
	args   json.RawMessage // as they came; nil if there are none
	meta   json.RawMessage // as it came; nil if there is none
}

// parsePlain returns the plain call that raw is, if it is one.
func parsePlain(raw []byte) (p plainCall, ok bool) {
	// Cheaper than a parse for all that is something else.
	if !bytes.Contains(raw, []byte(`"tools/`)) || !json.Valid(raw) {
		return plainCall{}, false
	}
	var version string
	var params json.RawMessage
	ok = members(raw, func(key string, value json.RawMessage) bool {
		switch {
		case key == "jsonrpc" && version == "":
			version = plainString(value)
			return version == "2.0"
		case key == "method" && p.method == "":
			p.method = plainString(value)
			return p.method == methodCall || p.method == methodList
		case key == "id" && p.id == nil:
			p.id = value
			return plainID(value)
		case key == "params" && params == nil:
			params = value
			return true
		}
		return false // something unusual, or twice the same
	})
	if !ok || version == "" || p.method == "" || p.id == nil {
		return plainCall{}, false
	}
	if params == nil {
		return p, p.method == methodList
	}
	list := p.method == methodList
	ok = members(params, func(key string, value json.RawMessage) bool {
		switch {
		case key == "_meta" && p.meta == nil:
			p.meta = value
			return value[0] == '{'
		case list:
			return false // a cursor, or something unusual
		case key == "name" && p.name == "":
			p.name = plainString(value)
			return p.name != ""
		case key == "arguments" && p.args == nil:
			p.args = value
			return true
		}
		return false
	})
	return p, ok && (list || p.name != "")
}

// plainString is the text of a JSON string without escapes; "" for all else.
func plainString(value json.RawMessage) string {
	if len(value) < 2 || value[0] != '"' || bytes.IndexByte(value, '\\') >= 0 {
		return ""
	}
	return string(value[1 : len(value)-1])
}

// plainID reports whether an id is one that every party writes the same way.
func plainID(value json.RawMessage) bool {
	if text := plainString(value); text != "" {
		return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	}
	const exact = 1 << 53
	n, err := strconv.ParseInt(string(value), 10, 64)
	return err == nil && n < exact && n > -exact && string(value) == strconv.FormatInt(n, 10)
}

// members calls each with the members of a JSON object, in order, until it
// returns false. It reports whether raw, which must be valid JSON, is an object
// whose keys have no escapes, and each never returned false.
func members(raw []byte, each func(key string, value json.RawMessage) bool) bool {
	i := skipSpace(raw, 0)
	if raw[i] != '{' {
		return false
	}
	if i = skipSpace(raw, i+1); raw[i] == '}' {
		return true
	}
	for {
		end := skipString(raw, i)
		key := raw[i+1 : end-1]
		if bytes.IndexByte(key, '\\') >= 0 {
			return false
		}
		start := skipSpace(raw, skipSpace(raw, end)+1) // over the colon
		end = skipValue(raw, start)
		if !each(string(key), raw[start:end:end]) {
			return false
		}
		if i = skipSpace(raw, end); raw[i] == '}' {
			return true
		}
		i = skipSpace(raw, i+1) // over the comma
	}
}

// The functions below return the index behind what begins at i in valid JSON.

func skipSpace(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r' {
		i++
	}
	return i
}

func skipString(raw []byte, i int) int {
	for i++; ; i++ {
		switch raw[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

func skipValue(raw []byte, i int) int {
	for depth := 0; ; {
		switch raw[i] {
		case '"':
			i = skipString(raw, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default: // a number, true, false or null
			for i < len(raw) && !strings.ContainsRune(",:]} \t\n\r", rune(raw[i])) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
}

// metas remembers the _meta of requests of the stateless era that the SDK has
// found in order: a client sends the same with each request. What it has not
// seen it does not judge.
type metas struct {
	mu    sync.RWMutex // guards known
	known map[string]struct{}
}

const (
	maxMetas = 256     // clients that are told apart
	maxMeta  = 4 << 10 // bytes; what is larger is never the same twice
)

func (m *metas) has(meta json.RawMessage) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	_, ok := m.known[string(meta)]
	return ok
}

// learn notes a _meta with which a request succeeded. One that has a meaning
// for its own request alone is never plain.
func (m *metas) learn(meta json.RawMessage) {
	if len(meta) > maxMeta || m.has(meta) {
		return
	}
	era := false
	lasting := members(meta, func(key string, value json.RawMessage) bool {
		era = era || key == "io.modelcontextprotocol/protocolVersion" && plainString(value) == firstStateless
		return strings.HasPrefix(key, "io.modelcontextprotocol/") && key != "io.modelcontextprotocol/logLevel"
	})
	if !lasting || !era {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.known == nil || len(m.known) >= maxMetas {
		m.known = map[string]struct{}{}
	}
	m.known[string(meta)] = struct{}{}
}
