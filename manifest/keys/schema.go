package keys

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/mcp/schema"
)

// AnyObject is the schema of a tool that says nothing of its arguments.
const AnyObject = `{"type":"object"}`

// typeNames are the types of JSON Schema, which the short form consists of.
var typeNames = []string{"string", "number", "integer", "boolean", "object", "array", "null"}

// foreignTypes are what people who write other languages call them.
var foreignTypes = map[string]string{
	"str": "string", "text": "string", "int": "integer", "float": "number", "double": "number",
	"bool": "boolean", "list": "array", "dict": "object", "map": "object",
}

// keywords are those of JSON Schema that may stand at the root of a tool's
// schema; see isShort.
var keywords = []string{
	"type", "properties", "required", "additionalProperties", "patternProperties", "propertyNames",
	"minProperties", "maxProperties", "dependentRequired", "dependentSchemas", "dependencies",
	"unevaluatedProperties", "oneOf", "anyOf", "allOf", "not", "if", "then", "else", "enum", "const",
	"definitions", "items", "title", "description", "examples", "default", "deprecated",
}

// member is one member of a JSON object whose order matters.
type member struct {
	name  string
	value json.RawMessage
}

// members lists the members of an object that is known to be sound.
func members(object []byte) []member {
	var list []member
	rawjson.AllMembers(object, func(name []byte, value json.RawMessage) bool {
		list = append(list, member{string(name), value})
		return true
	})
	return list
}

// text returns a value that is a string.
func (m member) text() (string, bool) {
	var s string
	err := json.Unmarshal(m.value, &s)
	return s, err == nil
}

// typeName returns the type that a value of the short form names, and whether
// the argument may be left out.
func (m member) typeName() (name string, optional, ok bool) {
	if m.value[0] != '"' { // a schema, as a rule
		return "", false, false
	}
	text, isText := m.text()
	name, optional = strings.CutSuffix(text, "?")
	return name, optional, isText && slices.Contains(typeNames, name)
}

// isShort tells the short form of RFC 3, `path: string`, from JSON Schema
// (SPEC B3). A mapping is JSON Schema if it says `type: object` or `type: [...]`,
// if a key begins with $, or if one of JSON Schema's keywords has a value that
// names no type: `required: [path]`, `description: Where to look`. Anything
// else is the short form, so that arguments may be called type, title or items:
// `type: string` asks for one argument, as no tool's arguments can be a string.
func isShort(list []member) bool {
	for _, m := range list {
		name, _, isType := m.typeName()
		switch {
		case strings.HasPrefix(m.name, "$"):
			return false
		case m.name == "type" && name == "object":
			return false
		case slices.Contains(keywords, m.name) && !isType:
			return false
		}
	}
	return len(list) > 0
}

// InputSchema returns mcp.input_schema as JSON Schema, {"type":"object"} if it is not
// given, or nil if it has a fault that leaves no schema.
func (d *Description) InputSchema() json.RawMessage {
	if len(d.MCP.InputSchema) == 0 {
		return json.RawMessage(AnyObject)
	}
	list := members(d.MCP.InputSchema)
	short := isShort(list)
	raw := withType(d.MCP.InputSchema, list)
	if short {
		var ok bool
		if raw, ok = d.expand(list); !ok {
			return nil
		}
	}
	_, err := schema.CompileInput(raw)
	d.schemaFaults("input_schema", short, err)
	return raw
}

// OutputSchema returns mcp.output_schema, or nil if there is none.
func (d *Description) OutputSchema() json.RawMessage {
	if len(d.MCP.OutputSchema) == 0 {
		return nil
	}
	list := members(d.MCP.OutputSchema)
	if isShort(list) && !hasType(list) {
		d.Fault("mcp", "output_schema", "wants a JSON Schema; the short form is for input_schema alone")
		return nil
	}
	raw := withType(d.MCP.OutputSchema, list)
	_, err := schema.CompileObject(raw)
	d.schemaFaults("output_schema", false, err)
	return raw
}

// withType adds "type": "object" to a schema without a type.
func withType(object []byte, list []member) json.RawMessage {
	if hasType(list) {
		return object
	}
	if len(list) == 0 {
		return json.RawMessage(AnyObject)
	}
	return append([]byte(`{"type":"object",`), object[1:]...)
}

func hasType(list []member) bool {
	return slices.ContainsFunc(list, func(m member) bool { return m.name == "type" })
}

// expand makes JSON Schema of the short form. A value is a type's name, with ?
// for an argument that may be left out (in {…}, YAML wants that in quotes:
// {limit: "integer?"}), or an ordinary schema of the argument, which may be left
// out if that gives a default. No other arguments are taken, so that a misspelt
// one is named and not ignored.
func (d *Description) expand(list []member) (raw json.RawMessage, ok bool) {
	var required []string
	out := []byte(`{"type":"object","properties":{`)
	ok = true
	for i, m := range list {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, inJSON(m.name)...), ':')
		name, optional, isType := m.typeName()
		switch {
		case isType:
			out = append(append(append(out, `{"type":"`...), name...), `"}`...)
		case m.value[0] == '{':
			out = append(out, m.value...)
			optional = slices.ContainsFunc(members(m.value), func(below member) bool { return below.name == "default" })
		default:
			d.Doc.Faultf(d.key("mcp", "input_schema")+"."+m.name, "%s", wantsType(m))
			ok = false
		}
		if !optional {
			required = append(required, m.name)
		}
	}
	out = append(out, '}')
	if len(required) > 0 {
		out = append(append(out, `,"required":`...), inJSON(required)...)
	}
	return append(out, `,"additionalProperties":false}`...), ok
}

// inJSON encodes strings, which cannot fail.
func inJSON(v any) []byte {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}

func wantsType(m member) string {
	wants := "wants " + strings.Join(typeNames, ", ") + " (with ? if it may be left out) or the schema of one argument"
	text, ok := m.text()
	if !ok {
		return wants
	}
	word, mark := strings.CutSuffix(text, "?")
	near := foreignTypes[strings.ToLower(word)]
	if near == "" {
		near = yamldoc.Nearest(word, typeNames)
	}
	if near == "" {
		return wants + ", got " + strconv.Quote(text)
	}
	if mark {
		near += "?"
	}
	return wants + ", got " + strconv.Quote(text) + "; did you mean " + strconv.Quote(near) + "?"
}

// schemaFaults gives the faults of a schema their places in the file.
func (d *Description) schemaFaults(name string, short bool, err error) {
	if err == nil {
		return
	}
	at := d.key("mcp", name)
	compile, ok := errors.AsType[*schema.CompileError](err)
	if !ok {
		d.Doc.Faultf(at, "%v", err)
		return
	}
	for _, f := range compile.Faults {
		path := f.Path
		if short && len(path) > 1 && path[0] == "properties" {
			path = path[1:]
		}
		d.Doc.Faultf(strings.Join(append([]string{at}, path...), "."), "%s", f.Msg)
	}
}
