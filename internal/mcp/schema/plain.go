package schema

import (
	"encoding/json"
	"slices"
)

// dialects are the values of $schema whose keywords isPlain knows.
var dialects = []string{
	"https://json-schema.org/draft/2020-12/schema",
	"http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-07/schema",
}

// simpleTypes are the types of JSON Schema.
var simpleTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// isPlain reports whether it is known without the compiler that it takes a schema: all keywords
// apply to a value or lead to its members and items, and their own values have the right types. Such a
// schema cannot multiply either. Most schemas of tools are plain, and the compiler takes many times as
// long to find that out.
func isPlain(doc any) bool {
	object, ok := doc.(map[string]any)
	if !ok {
		return false
	}
	if dialect, given := object["$schema"]; given {
		text, ok := dialect.(string)
		if !ok || !slices.Contains(dialects, text) {
			return false
		}
	}
	return plainObject(object, true)
}

// plainPart is isPlain for a part of a schema.
func plainPart(doc any) bool {
	if _, ok := doc.(bool); ok {
		return true
	}
	object, ok := doc.(map[string]any)
	return ok && plainObject(object, false)
}

func plainObject(object map[string]any, root bool) bool {
	for key, value := range object {
		if key == "$schema" && root {
			continue
		}
		if !plainKeyword(key, value) {
			return false
		}
	}
	return true
}

// plainKeyword reports whether a keyword is known here, and its value is sound.
func plainKeyword(key string, value any) bool {
	switch key {
	case "title", "description", "$comment", "format":
		_, ok := value.(string)
		return ok
	case "default", "const", "x-mcp-header":
		return true
	case "examples", "enum":
		_, ok := value.([]any)
		return ok
	case "deprecated", "readOnly", "writeOnly", "uniqueItems":
		_, ok := value.(bool)
		return ok
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		_, ok := value.(json.Number)
		return ok
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		return isCount(value)
	case "type":
		return isType(value)
	case "required":
		names, ok := texts(value)
		return ok && !repeats(names)
	case "additionalProperties", "items":
		return plainPart(value)
	case "properties":
		properties, ok := value.(map[string]any)
		for _, property := range properties {
			ok = ok && plainPart(property)
		}
		return ok
	}
	return false
}

// isCount reports whether a value is a small whole number.
func isCount(value any) bool {
	digits, ok := value.(json.Number)
	if !ok || len(digits) > 9 {
		return false
	}
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// isType reports whether a value may be that of type.
func isType(value any) bool {
	if one, ok := value.(string); ok {
		return slices.Contains(simpleTypes, one)
	}
	names, ok := texts(value)
	if !ok || len(names) == 0 || repeats(names) {
		return false
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(simpleTypes, name) })
}

// repeats reports whether a text is there twice.
func repeats(list []string) bool {
	seen := make(map[string]bool, len(list))
	for _, text := range list {
		if seen[text] {
			return true
		}
		seen[text] = true
	}
	return false
}
