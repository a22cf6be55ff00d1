package schema

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// shallow is what most tools ask of their arguments: an object of scalars, of
// which some are required. Whether arguments fit it shows without decoding
// them, at a small part of the cost. What does not clearly fit goes to the
// validator, which judges, and says why.
type shallow struct {
	properties map[string][]string // the types that each may have; nil for any
	required   []string
	closed     bool // nothing but properties may be there
}

// maxRequired is how many required properties a shallow schema may have.
const maxRequired = 64

// shallowOf returns doc as a shallow schema, or nil when it asks for more.
func shallowOf(doc any) *shallow {
	object, ok := doc.(map[string]any)
	if !ok || object["type"] != "object" {
		return nil
	}
	s := &shallow{properties: map[string][]string{}}
	for key, value := range object {
		switch key {
		case "type", "$schema", "$comment", "title", "description", "default", "examples":
		case "additionalProperties":
			allowed, ok := value.(bool)
			if !ok {
				return nil
			}
			s.closed = !allowed
		case "required":
			if s.required, ok = texts(value); !ok || len(s.required) > maxRequired {
				return nil
			}
		case "properties":
			properties, ok := value.(map[string]any)
			if !ok {
				return nil
			}
			for name, property := range properties {
				if s.properties[name], ok = typesOf(property); !ok {
					return nil
				}
			}
		default:
			return nil
		}
	}
	return s
}

// typesOf returns the types that a property may have, nil for any, if its
// schema asks for nothing else.
func typesOf(property any) (types []string, ok bool) {
	object, ok := property.(map[string]any)
	if !ok {
		return nil, property == true
	}
	for key, value := range object {
		switch key {
		case "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly":
		case "type":
			if one, is := value.(string); is {
				types = []string{one}
			} else if types, ok = texts(value); !ok {
				return nil, false
			}
		default:
			return nil, false
		}
	}
	return types, true
}

// texts returns a list of strings as such.
func texts(value any) ([]string, bool) {
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	all := make([]string, 0, len(list))
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return nil, false
		}
		all = append(all, text)
	}
	return all, true
}

// isOpen reports whether any object fits, so that nothing needs to be decoded.
func (s *shallow) isOpen() bool {
	return s != nil && len(s.properties)+len(s.required) == 0 && !s.closed
}

// fits reports whether arguments, which are JSON, clearly fit. If it does not, they may still.
func (s *shallow) fits(args []byte) bool {
	var seen uint64 // a bit for each of required
	clear := rawjson.Members(args, func(key []byte, value json.RawMessage) bool {
		types, known := s.properties[string(key)]
		if !known && s.closed {
			return false
		}
		if i := slices.Index(s.required, string(key)); i >= 0 {
			seen |= 1 << i
		}
		kind := scalar(value)
		return kind != "" && (types == nil || slices.Contains(types, kind) ||
			kind == "integer" && slices.Contains(types, "number"))
	})
	return clear && seen == 1<<len(s.required)-1
}

// scalar returns the type of a value that shows at once; "" for all else, such
// as numbers that need to be reckoned with.
func scalar(value []byte) string {
	switch value[0] {
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	case '{', '[':
		return ""
	}
	if len(value) <= maxDigits && !bytes.ContainsAny(value, ".eE") {
		return "integer"
	}
	return ""
}
