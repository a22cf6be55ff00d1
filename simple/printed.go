package simple

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// readResult reads a CallToolResult that a tool printed. It is as strict as
// clients are: they drop a whole answer for one block that lacks a field, and
// then nobody learns why.
func readResult(printed []byte) (*mcp.CallToolResult, error) {
	if !utf8.Valid(printed) {
		return nil, errNotUTF8
	}
	var fields map[string]json.RawMessage // not a struct, which takes names in any case
	if json.Unmarshal(printed, &fields) != nil || fields == nil {
		return nil, errors.New("it is not one JSON object")
	}
	res := &mcp.CallToolResult{Content: []mcp.Content{}, Meta: mcp.Meta{}}
	var blocks []json.RawMessage
	for _, part := range []struct {
		name, want string
		to         any
	}{
		{"content", "an array", &blocks},
		{"isError", "true or false", &res.IsError},
		{"structuredContent", "an object", new(map[string]json.RawMessage)},
	} {
		if raw, has := fields[part.name]; has && json.Unmarshal(raw, part.to) != nil {
			return nil, fmt.Errorf("%s: want %s", part.name, part.want)
		}
	}
	if raw := fields["structuredContent"]; raw != nil && string(raw) != "null" {
		res.StructuredContent = raw
	}
	if blocks == nil && res.StructuredContent == nil {
		return nil, errors.New("it has no content")
	}
	if raw, has := fields["_meta"]; has {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if d.Decode(&res.Meta) != nil {
			return nil, errors.New("_meta: want an object")
		}
		if res.Meta == nil { // it was null
			res.Meta = mcp.Meta{}
		}
	}
	for i, block := range blocks {
		if err := checkBlock(block); err != nil {
			return nil, fmt.Errorf("content[%d]: %w", i, err)
		}
		res.Content = append(res.Content, rawContent{json: block})
	}
	// The rest of the shape: annotations, base64.
	if err := json.Unmarshal(printed, new(mcp.CallToolResult)); err != nil {
		return nil, err
	}
	return res, nil
}

// needed are the fields of a block that must be strings, by its type.
var needed = map[string][]string{
	"text":          {"text"},
	"image":         {"data", "mimeType"},
	"audio":         {"data", "mimeType"},
	"resource_link": {"uri", "name"},
	"resource":      {},
}

func checkBlock(raw json.RawMessage) error {
	var block map[string]json.RawMessage
	if json.Unmarshal(raw, &block) != nil || block == nil {
		return errors.New("want an object")
	}
	kind, ok := text(block, "type")
	if !ok {
		return errors.New("type: want a string")
	}
	names, known := needed[kind]
	if !known {
		return fmt.Errorf("type: there is none called %q", clip(kind))
	}
	if err := wantStrings(block, names); err != nil || kind != "resource" {
		return err
	}
	var resource map[string]json.RawMessage
	if json.Unmarshal(block["resource"], &resource) != nil || resource == nil {
		return errors.New("resource: want an object")
	}
	body := "text"
	if _, has := resource["blob"]; has {
		body = "blob"
	}
	if err := wantStrings(resource, []string{"uri", body}); err != nil {
		return fmt.Errorf("resource.%w", err)
	}
	return nil
}

func wantStrings(object map[string]json.RawMessage, names []string) error {
	for _, name := range names {
		if _, ok := text(object, name); !ok {
			return fmt.Errorf("%s: want a string", name)
		}
	}
	return nil
}

// text returns the field of an object that must be a string.
func text(object map[string]json.RawMessage, name string) (string, bool) {
	var s *string
	if json.Unmarshal(object[name], &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

// rawContent is a content block that is passed on as it came.
type rawContent struct {
	mcp.Content // never set: the block is only ever marshalled
	json        json.RawMessage
}

// MarshalJSON returns the block as it came.
func (c rawContent) MarshalJSON() ([]byte, error) { return c.json, nil }
