package wire

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unique"

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

// Declared is what a client has declared about itself: in its initialize, or, in the stateless era,
// with each request.
type Declared struct {
	Version string // the protocol version that it asked for; "" if Orla does not speak it
	Name    string // of its program, cut to maxName
	Task    string // a name for its session, by client.SessionTask; "" without one

	Capabilities                json.RawMessage // its capabilities as JSON, which must not be modified; nil for none
	samples, elicits, listsRoot bool            // it can be asked these questions

	shared unique.Handle[string] // has the bytes of Name and Capabilities, once for all sessions of one program
}

// Takes reports whether the client has declared the capability for a question.
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

// setCapabilities reads the capabilities of a client. It reports false if raw is not an object of
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

// maxCapabilities bounds the capabilities that a session keeps, in bytes. Of larger ones it keeps
// only the names.
const maxCapabilities = 1 << 10

// keptCapabilities returns the capabilities as a session keeps them.
func (d *Declared) keptCapabilities() json.RawMessage {
	if len(d.Capabilities) <= maxCapabilities {
		return d.Capabilities
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

// maxName bounds the name of a client's program, in bytes.
const maxName = 64

// ReadInitialize reads the params of an initialize. It reports false if they do not have the shape
// that the protocol requires.
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
			d.Name = name[:min(len(name), maxName)]
		}
		return ok
	})
	d.share()
	return d, plain && ok
}

// share makes the texts of d those that other sessions have too, so that it does not keep the whole message in memory, and ten
// thousand sessions of one program keep them once.
func (d *Declared) share() {
	capabilities := d.keptCapabilities()
	d.shared = unique.Make(d.Name + string(capabilities))
	texts := d.shared.Value()
	d.Name = texts[:len(d.Name)]
	if capabilities != nil {
		d.Capabilities = rawjson.Bytes(texts[len(d.Name):])
	}
}

// isImplementation reports whether a value is null or can be an Implementation of the protocol.
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

// Stateless is what the _meta of a request of the stateless era says.
type Stateless struct {
	Version string // "" if the request is of another era
	Says    Declared
	Level   string // the least level of log messages that it wants; "" for none
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

// Unsupported returns the error for a protocol version that is not supported. It lists those that
// are.
func Unsupported(asked string, spoken []string) *jsonrpc.Error {
	data := rawjson.Must(mcp.UnsupportedProtocolVersionData{Supported: spoken, Requested: asked})
	return &jsonrpc.Error{Code: mcp.CodeUnsupportedProtocolVersion, Message: fmt.Sprintf("protocol version %q is not spoken here", asked), Data: data}
}

// ProtocolPrefix begins the keys of _meta that the protocol reserves for the client and the server.
const ProtocolPrefix = "io.modelcontextprotocol/"

// metaLogLevel is the key in _meta with which a request of the stateless era sets Stateless.Level.
const metaLogLevel = ProtocolPrefix + "logLevel"

// Levels are the levels of log messages, the most verbose first.
var Levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Params returns params of an initialize that say the same.
func (d *Declared) Params() json.RawMessage {
	name := rawjson.Must(d.Name)
	capabilities := d.Capabilities
	if capabilities == nil {
		capabilities = json.RawMessage("{}")
	}
	version := cmp.Or(d.Version, LastWithSessions)
	return slices.Concat([]byte(`{"protocolVersion":"`+version+`","capabilities":`), capabilities, []byte(`,"clientInfo":{"name":`), name, []byte(`}}`))
}
