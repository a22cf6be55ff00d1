package mcpbridge

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/rawjson"
	"github.com/orla-project/orla/internal/trace"
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
	meta   json.RawMessage // as it came, but for trace; nil if there is nothing else in it
	cursor string          // of a list; "" for its first page
	trace  json.RawMessage // what of _meta says where the client's trace is; nil if nothing does

	version string // of the protocol, once the client is known to speak it
	task    string // see client
	page    page   // of a list, once it is found
}

// parsePlain returns the plain call that raw is, if it is one.
func parsePlain(raw []byte) (p plainCall, ok bool) {
	// Cheaper than a parse for all that is something else.
	if !bytes.Contains(raw, []byte(`"tools/`)) || !rawjson.Valid(raw) {
		return plainCall{}, false
	}
	var version string
	var params json.RawMessage
	ok = rawjson.Members(raw, func(key string, value json.RawMessage) bool {
		switch {
		case key == "jsonrpc" && version == "":
			version = rawjson.String(value)
			return version == "2.0"
		case key == "method" && p.method == "":
			p.method = rawjson.String(value)
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
	ok = rawjson.Members(params, func(key string, value json.RawMessage) bool {
		switch {
		case key == "_meta" && p.meta == nil:
			p.meta = value
			return value[0] == '{'
		case key == "cursor" && list && p.cursor == "":
			p.cursor = rawjson.String(value)
			return p.cursor != ""
		case list:
			return false // something unusual
		case key == "name" && p.name == "":
			p.name = rawjson.String(value)
			return p.name != ""
		case key == "arguments" && p.args == nil:
			p.args = value
			return true
		}
		return false
	})
	if len(p.meta) > maxRequestMeta {
		return plainCall{}, false // to be refused
	}
	if ok && p.meta != nil {
		p.meta, p.trace = parted(p.meta)
	}
	return p, ok && (list || p.name != "")
}

// parted takes out of a _meta what says where a trace is: it is another with
// each call, and asks for nothing. One that is odd in any way stays whole.
func parted(meta json.RawMessage) (rest, traced json.RawMessage) {
	if !bytes.Contains(meta, []byte(`"trace`)) {
		return meta, nil
	}
	var seen [3]bool // which of the keys of a trace there were
	plain := rawjson.Members(meta, func(key string, value json.RawMessage) bool {
		i := slices.Index(traceKeys, key)
		if i < 0 {
			rest = meta // there is something else
			return true
		}
		twice := seen[i]
		seen[i] = true
		return !twice && rawjson.String(value) != ""
	})
	if !plain {
		return meta, nil
	}
	if rest != nil {
		rest, _ = rawjson.Edit(meta, ofTrace)
	}
	if slices.Contains(seen[:], true) {
		traced, _ = rawjson.Edit(meta, func(key string) bool { return !ofTrace(key) })
	}
	return rest, traced
}

// traceKeys are the keys of _meta that say where the client's trace is.
var traceKeys = []string{trace.ParentKey, trace.StateKey, "baggage"}

func ofTrace(key string) bool { return slices.Contains(traceKeys, key) }

// plainID reports whether an id is one that every party writes the same way.
func plainID(value json.RawMessage) bool {
	if text := rawjson.String(value); text != "" {
		return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	}
	const exact = 1 << 53
	n, err := strconv.ParseInt(string(value), 10, 64)
	return err == nil && n < exact && n > -exact && string(value) == strconv.FormatInt(n, 10)
}

// metas remembers the _meta of requests of the stateless era that the SDK has
// found in order: a client sends the same with each request. What it has not
// seen it does not judge.
type metas struct {
	mu    sync.RWMutex                 // guards known
	known map[string]map[string]client // by caller, and by _meta
}

// client is what a client has said of itself, as far as plain calls care.
type client struct {
	// listens says that it takes requests of the server's while it waits for an answer.
	listens bool
	version string // of the protocol that it asked for; "" if that is none of ours
	name    string // the program's, as an initialize gives it, or what is enough of that
	task    string // the name of its session, by sessionTask; "" where it is not known
}

const (
	maxMetas       = 64      // clients of one caller that are told apart
	maxMetaCallers = 256     // callers whose clients are
	maxMeta        = 4 << 10 // bytes; what is larger is never the same twice
)

// find returns what the client of a caller with this _meta has said, if it is known.
func (m *metas) find(caller string, meta json.RawMessage) (client, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c, ok := m.known[caller][string(meta)]
	return c, ok
}

// learn notes a _meta with which a request of a caller succeeded. One that has a
// meaning for its own request alone is never plain. A caller with many forgets its own.
func (m *metas) learn(caller string, meta json.RawMessage) {
	if len(meta) > maxMeta {
		return
	}
	if _, known := m.find(caller, meta); known {
		return
	}
	era := false
	var c client
	lasting := rawjson.Members(meta, func(key string, value json.RawMessage) bool {
		switch key {
		case "io.modelcontextprotocol/protocolVersion":
			if rawjson.String(value) == firstStateless {
				era, c.version = true, firstStateless
			}
		case "io.modelcontextprotocol/clientCapabilities":
			c.listens = c.listens || takesRequests(value)
		}
		return strings.HasPrefix(key, protocolPrefix) && key != metaLogLevel
	})
	if !lasting || !era {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := m.known[caller]
	if of == nil && (m.known == nil || len(m.known) >= maxMetaCallers) {
		m.known = map[string]map[string]client{}
	}
	if of == nil || len(of) >= maxMetas {
		of = map[string]client{}
		m.known[caller] = of
	}
	of[string(meta)] = c
}

// takesRequests reports whether a client with these capabilities can be asked
// anything. What is unusual can.
func takesRequests(capabilities json.RawMessage) bool {
	return !rawjson.Members(capabilities, func(key string, _ json.RawMessage) bool {
		return key != "sampling" && key != "elicitation" && key != "roots"
	})
}

// introduced reads out of an initialize what a client says of itself.
func introduced(message json.RawMessage) client {
	var init struct {
		Params struct {
			Version      string          `json:"protocolVersion"`
			Capabilities json.RawMessage `json:"capabilities"`
			Info         struct {
				Name string `json:"name"`
			} `json:"clientInfo"`
		} `json:"params"`
	}
	if json.Unmarshal(message, &init) != nil {
		return client{listens: true}
	}
	const enough = 64
	name := init.Params.Info.Name
	c := client{
		listens: len(init.Params.Capabilities) > 0 && takesRequests(init.Params.Capabilities),
		name:    strings.Clone(name[:min(len(name), enough)]),
	}
	if withSessions[init.Params.Version] {
		c.version = init.Params.Version
	}
	return c
}
