package mcpbridge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/rawjson"
)

const (
	// firstStateless is the first protocol version without sessions.
	firstStateless = "2026-07-28"
	// lastWithSessions is what a client of an unknown version is offered.
	lastWithSessions = "2025-11-25"
	// lastWithBatches is the last version in which a message may be a batch.
	lastWithBatches = "2025-03-26"
	// versionWithout is the version of an HTTP request that names none.
	versionWithout = "2025-03-26"
)

// versions are the protocol versions that are spoken, newest first.
var versions = []string{firstStateless, lastWithSessions, "2025-06-18", "2025-03-26", "2024-11-05"}

// withSessions reports whether a version is one of those with sessions.
func withSessions(version string) bool {
	return version != firstStateless && slices.Contains(versions, version)
}

// declared is what a client has said of itself: in its initialize, or, in the stateless
// era, with each request.
type declared struct {
	version string // of the protocol that it asked for; "" if that is none of ours
	name    string // its program's, or what is enough of that
	task    string // the name of its session, by sessionTask; "" without one

	capabilities                json.RawMessage // those for what it may be asked, as JSON; nil for none
	samples, elicits, listsRoot bool            // it has declared that it takes these questions
}

// takes reports whether a client has declared that it takes a question.
func (d *declared) takes(method string) bool {
	switch method {
	case methodSample:
		return d.samples
	case methodElicit:
		return d.elicits
	case methodRoots:
		return d.listsRoot
	}
	return false
}

// askable reports whether a client can be asked anything.
func (d *declared) askable() bool { return d.samples || d.elicits || d.listsRoot }

// setCapabilities notes what a client can be asked. It reports false for what are not
// capabilities.
func (d *declared) setCapabilities(raw json.RawMessage) bool {
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
	if d.askable() {
		d.capabilities, _ = rawjson.Edit(raw, func(key string) bool {
			return key != "sampling" && key != "elicitation" && key != "roots"
		})
	}
	return true
}

// maxName is how much of its program's name is kept of a client, in bytes.
const maxName = 64

// introduced reads what a client says of itself in the params of an initialize. It reports
// false for what is not of the shape that the protocol gives it.
func introduced(params json.RawMessage) (d declared, ok bool) {
	if !rawjson.IsObject(params) {
		return d, false
	}
	ok = true
	plain := rawjson.Members(params, func(key []byte, value json.RawMessage) bool {
		switch string(key) {
		case "protocolVersion":
			var version string
			if version, ok = textOf(value); ok && withSessions(version) {
				d.version = version
			}
		case "capabilities":
			ok = string(value) == "null" || d.setCapabilities(value)
		case "clientInfo":
			ok = isImplementation(value)
			name, _ := textOf(memberOf(value, "name"))
			d.name = strings.Clone(name[:min(len(name), maxName)])
		}
		return ok
	})
	// The message is not kept for as long as its session.
	d.capabilities = slices.Clone(d.capabilities)
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

// stateless is what a request of the stateless era says in its _meta.
type stateless struct {
	version string // "" if the request is of another era
	says    declared
	level   string // from which level on it wants log messages; "" for none
}

// readMeta reads a request's _meta (2026-07-28, basic).
func readMeta(meta json.RawMessage) (s stateless, refused *jsonrpc.Error) {
	if !rawjson.IsObject(meta) {
		return s, nil
	}
	if plain, changed := plainObject(meta); changed {
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
	asked, _ := textOf(version)
	if asked < firstStateless {
		return s, nil
	}
	wrong := ""
	switch {
	case info != nil && (string(info) == "null" || !isImplementation(info)):
		wrong = "invalid _meta field " + `"` + mcp.MetaKeyClientInfo + `"`
	case capabilities == nil || !s.says.setCapabilities(capabilities):
		wrong = "missing or invalid _meta field " + `"` + mcp.MetaKeyClientCapabilities + `"`
	}
	if wrong != "" {
		return s, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: wrong}
	}
	if asked != firstStateless {
		return s, unsupported(asked, versions)
	}
	s.version, s.says.version = firstStateless, firstStateless
	if text, _ := textOf(level); slices.Contains(levels, text) {
		s.level = text
	}
	return s, nil
}

// unsupported refuses a version of the protocol, and says which there are.
func unsupported(asked string, spoken []string) *jsonrpc.Error {
	data, err := json.Marshal(mcp.UnsupportedProtocolVersionData{Supported: spoken, Requested: asked})
	if err != nil { // they are strings
		panic(err)
	}
	return &jsonrpc.Error{Code: mcp.CodeUnsupportedProtocolVersion, Message: fmt.Sprintf("protocol version %q is not spoken here", asked), Data: data}
}

// protocolPrefix begins the keys of _meta that the protocol keeps for the
// parties themselves.
const protocolPrefix = "io.modelcontextprotocol/"

// metaLogLevel is where a request of the stateless era says which messages it wants.
const metaLogLevel = protocolPrefix + "logLevel"

// levels are those of log messages, from the most verbose on.
var levels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}
