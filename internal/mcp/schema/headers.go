package schema

import (
	"maps"
	"slices"
	"strings"
)

// checkHeaders checks the x-mcp-header annotations of an input schema
// (SEP-2243): only strings, integers and booleans may travel in a header, its
// name must be an HTTP token, and no two may be the same. The SDK panics on a
// tool that breaks these rules.
func checkHeaders(root map[string]any) error {
	return checkHeadersIn(root, nil, map[string]bool{})
}

func checkHeadersIn(object map[string]any, path []string, taken map[string]bool) error {
	properties, ok := object["properties"].(map[string]any)
	if !ok {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, ok := properties[name].(map[string]any)
		if !ok {
			continue
		}
		at := append(slices.Clone(path), "properties", name)
		if annotation, ok := property["x-mcp-header"]; ok {
			if why := headerFault(property["type"], annotation, taken); why != "" {
				return faulty(append(at, "x-mcp-header"), "%s", why)
			}
		}
		if err := checkHeadersIn(property, at, taken); err != nil {
			return err
		}
	}
	return nil
}

// headerFault returns what is wrong with one annotation, or "".
func headerFault(kind, annotation any, taken map[string]bool) string {
	if kind != "string" && kind != "integer" && kind != "boolean" {
		return "fits only an argument whose type is string, integer or boolean"
	}
	header, ok := annotation.(string)
	if !ok || header == "" || strings.ContainsFunc(header, notToken) {
		return "must be a header name of letters, digits and !#$%&'*+-.^_`|~, got " + inJSON(annotation)
	}
	lower := strings.ToLower(header)
	if taken[lower] {
		return "the header " + header + " is taken by another argument"
	}
	taken[lower] = true
	return ""
}

// notToken reports whether a character may not stand in an HTTP field name.
func notToken(c rune) bool {
	switch {
	case c >= '0' && c <= '9', c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z':
		return false
	}
	return !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}
