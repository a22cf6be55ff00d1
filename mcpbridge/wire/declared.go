package wire

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

const (
	// FirstStateless is the first protocol version without sessions.
	FirstStateless = "2026-07-28"
	// LastWithSessions is what a client of an unknown version is offered.
	LastWithSessions = "2025-11-25"
	// LastWithBatches is the last version in which a message may be a batch.
	LastWithBatches = "2025-03-26"
	// VersionWithout is the version of an HTTP request that names none.
	VersionWithout = "2025-03-26"
)

// Versions are the protocol versions that are spoken, newest first.
var Versions = []string{FirstStateless, LastWithSessions, "2025-06-18", "2025-03-26", "2024-11-05"}

// WithSessions reports whether a version is one of those with sessions.
func WithSessions(version string) bool {
	return version != FirstStateless && slices.Contains(Versions, version)
}

// Declared is what a client has said of itself: in its initialize, or, in the stateless
// era, with each request.
type Declared struct {
	Version string // of the protocol that it asked for; "" if that is none of ours
	Name    string // its program's, or what is enough of that
	Task    string // the name of its session, by client.SessionTask; "" without one

	Capabilities                json.RawMessage // those for what it may be asked, as JSON; nil for none
	samples, elicits, listsRoot bool            // it has declared that it takes these questions
}

// Takes reports whether a client has declared that it takes a question.
func (d *Declared) Takes(method string) bool {
	switch method {
	case MethodSample:
		return d.samples
	case MethodElicit:
		return d.elicits
	case MethodRoots:
		return d.listsRoot
	}
	return false
}

// Askable reports whether a client can be asked anything.
func (d *Declared) Askable() bool { return d.samples || d.elicits || d.listsRoot }

// setCapabilities notes what a client can be asked. It reports false for what are not
// capabilities.
func (d *Declared) setCapabilities(raw json.RawMessage) bool {
	if !rawjson.IsObject(raw) {
		return false
	}
	ok := true
	plain := rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		given := value[0] == '{'
		switch string(key) {
		case "sampling":
			d.samples = given
		case "elicitation":
			d.elicits = given
		case "roots":
			d.listsRoot = given
		default:
			return true
		}
		ok = ok && (given || string(value) == "null")
		return true
	})
	if !plain || !ok {
		return false
	}
	if d.Askable() {
		d.Capabilities, _ = rawjson.Edit(raw, func(key string) bool {
			return key != "sampling" && key != "elicitation" && key != "roots"
		})
	}
	return true
}

// maxCapabilities bounds what a session keeps of the capabilities of its client, in bytes.
// Of larger ones it keeps the names.
const maxCapabilities = 1 << 10

// keptCapabilities are the capabilities as a session keeps them. The message is not kept for
// as long as its session.
func (d *Declared) keptCapabilities() json.RawMessage {
	if len(d.Capabilities) <= maxCapabilities {
		return slices.Clone(d.Capabilities)
	}
	var names []string
	for _, c := range []struct {
		name     string
		declared bool
	}{{"sampling", d.samples}, {"elicitation", d.elicits}, {"roots", d.listsRoot}} {
		if c.declared {
			names = append(names, `"`+c.name+`":{}`)
		}
	}
	return json.RawMessage("{" + strings.Join(names, ",") + "}")
}

// maxName is how much of its program's name is kept of a client, in bytes.
const maxName = 64

// ReadInitialize reads what a client says of itself in the params of an initialize. It reports
// false for what is not of the shape that the protocol gives it.
func ReadInitialize(params json.RawMessage) (d Declared, ok bool) {
	if !rawjson.IsObject(params) {
		return d, false
	}
	ok = true
	plain := rawjson.Members(params, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "protocolVersion":
			var version string
			if version, ok = TextOf(value); ok && WithSessions(version) {
				d.Version = version
			}
		case "capabilities":
			ok = string(value) == "null" || d.setCapabilities(value)
		case "clientInfo":
			ok = isImplementation(value)
			name, _ := TextOf(rawjson.Get(value, "name"))
			d.Name = strings.Clone(name[:min(len(name), maxName)])
		}
		return ok
	})
	d.Capabilities = d.keptCapabilities()
	return d, plain && ok
}

// isImplementation reports whether a value may be what the protocol calls an
// Implementation, or null.
func isImplementation(raw json.RawMessage) bool {
	if string(raw) == "null" {
		return true
	}
	if !rawjson.IsObject(raw) {
		return false
	}
	return rawjson.Members(raw, func(key []byte, value json.RawMessage) bool {
		return string(key) != "name" && string(key) != "version" && string(key) != "title" || value[0] == '"' || value[0] == 'n'
	})
}

// Stateless is what a request of the stateless era says in its _meta.
type Stateless struct {
	Version string // "" if the request is of another era
	Says    Declared
	Level   string // from which level on it wants log messages; "" for none
}

// ReadMeta reads a request's _meta (2026-07-28, basic).
func ReadMeta(meta json.RawMessage) (s Stateless, refused *jsonrpc.Error) {
	if !rawjson.IsObject(meta) {
		return s, nil
	}
	if plain, changed := PlainObject(meta); changed {
		meta = plain
	}
	var version, info, capabilities, level json.RawMessage
	rawjson.Members(meta, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case mcp.MetaKeyProtocolVersion:
			version = value
		case mcp.MetaKeyClientInfo:
			info = value
		case mcp.MetaKeyClientCapabilities:
			capabilities = value
		case metaLogLevel:
			level = value
		}
		return true
	})
	asked, _ := TextOf(version)
	if asked < FirstStateless {
		return s, nil
	}
	wrong := ""
	switch {
	case info != nil && (string(info) == "null" || !isImplementation(info)):
		wrong = "invalid _meta field " + `"` + mcp.MetaKeyClientInfo + `"`
	case capabilities == nil || !s.Says.setCapabilities(capabilities):
		wrong = "missing or invalid _meta field " + `"` + mcp.MetaKeyClientCapabilities + `"`
	}
	if wrong != "" {
		return s, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wrong}
	}
	if asked != FirstStateless {
		return s, Unsupported(asked, Versions)
	}
	s.Version, s.Says.Version = FirstStateless, FirstStateless
	if text, _ := TextOf(level); slices.Contains(Levels, text) {
		s.Level = text
	}
	return s, nil
}

// Unsupported refuses a version of the protocol, and says which there are.
func Unsupported(asked string, spoken []string) *jsonrpc.Error {
	data, err := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: spoken, Requested: asked})
	if err != nil { // they are strings
		panic(err)
	}
	return &jsonrpc.Error{Code: mcp.CodeUnsupportedProtocolVersion, Message: fmt.Sprintf("protocol version %q is not spoken here", asked), Data: data}
}

// ProtocolPrefix begins the keys of _meta that the protocol keeps for the
// parties themselves.
const ProtocolPrefix = "io.modelcontextprotocol/"

// metaLogLevel is where a request of the stateless era says which messages it wants.
const metaLogLevel = ProtocolPrefix + "logLevel"

// Levels are those of log messages, from the most verbose on.
var Levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
