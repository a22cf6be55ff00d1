package simple

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	// maxLevels is how deep a result may be nested: clients accept no more.
	maxLevels = 1000
	// maxMeta bounds the members of a result's _meta: each takes many times its size in memory.
	maxMeta = 10_000
	// maxBlocks bounds the blocks of a result, for the same reason.
	maxBlocks = 10_000
	// maxDecoded bounds the values of one block that have to be decoded to be checked.
	maxDecoded = 10_000
)

// readResult reads a CallToolResult that a tool printed. It is as strict as clients: a client
// rejects a whole answer for one block that lacks a field, without an error that the tool's author
// sees. The result refers to parts of printed: almost nothing is decoded, since decoded values take
// many times their size.
func readResult(ctx context.Context, printed []byte) (*mcp.CallToolResult, error) {
	if !utf8.Valid(printed) {
		return nil, errNotUTF8
	}
	if rawjson.Deeper(printed, maxLevels) {
		return nil, fmt.Errorf("it is nested more than %d deep", maxLevels)
	}
	fields := map[string]json.RawMessage{}
	if eachMember(printed, func(key string, value json.RawMessage) bool {
		switch key {
		case "content", "isError", "structuredContent", "_meta":
			if delete(fields, key); string(value) != "null" {
				fields[key] = value
			}
		}
		return true
	}) != nil {
		return nil, errors.New("it is not one JSON object")
	}
	content, structured := fields["content"], fields["structuredContent"]
	if content != nil && content[0] != '[' {
		return nil, errors.New("content: want an array")
	}
	res := &mcp.CallToolResult{Content: []mcp.Content{}}
	switch string(fields["isError"]) {
	case "true":
		res.IsError = true
	case "false", "":
	default:
		return nil, errors.New("isError: want true or false")
	}
	switch {
	case structured != nil && !rawjson.IsObject(structured):
		return nil, errors.New("structuredContent: want an object")
	case structured != nil:
		res.StructuredContent = structured
	case content == nil:
		return nil, errors.New("it has no content")
	}
	var err error
	if res.Meta, err = readMeta(fields["_meta"]); err != nil {
		return nil, err
	}
	if content != nil {
		res.Content, err = readContent(ctx, content)
	}
	return res, err
}

// readMeta reads the _meta of a result; nil if there is none. Nested values stay JSON.
func readMeta(raw json.RawMessage) (mcp.Meta, error) {
	meta := mcp.Meta{}
	switch {
	case raw == nil:
		return meta, nil
	case !rawjson.IsObject(raw):
		return nil, errors.New("_meta: want an object")
	case rawjson.Count(raw) > maxMeta:
		return nil, fmt.Errorf("_meta: it has more than %d members", maxMeta)
	}
	var err error
	_ = eachMember(raw, func(key string, value json.RawMessage) bool { // it was checked to be valid
		if meta[key] = value; value[0] != '{' && value[0] != '[' {
			meta[key], err = rawjson.Decode(value)
		}
		return err == nil
	})
	return meta, err
}

// readContent reads the blocks of a result.
func readContent(ctx context.Context, raw json.RawMessage) (content []mcp.Content, err error) {
	blocks := 0
	rawjson.Elements(raw, func(json.RawMessage) bool { blocks++; return true })
	if blocks > maxBlocks {
		return nil, fmt.Errorf("content: it has more than %d blocks", maxBlocks)
	}
	content = make([]mcp.Content, 0, blocks)
	fields := map[string]json.RawMessage{}
	rawjson.Elements(raw, func(block json.RawMessage) bool {
		if err = context.Cause(ctx); err == nil {
			err = checkBlock(block, fields)
		}
		if err != nil {
			err = fmt.Errorf("content[%d]: %w", len(content), err)
			return false
		}
		content = append(content, rawContent{json: block})
		return true
	})
	return content, err
}

// needed lists the fields that must be strings, for each type of block.
var needed = map[string][]string{
	"text":          {"text"},
	"image":         {"data", "mimeType"},
	"audio":         {"data", "mimeType"},
	"resource_link": {"uri", "name"},
	"resource":      {},
}

// shape is the type of value that clients expect in a field.
type shape int

const (
	aString shape = iota
	anObject
	isBase64 // a string with base64
	isDecoded
)

// blockShapes are the fields of blocks of all types, resourceShapes those of the resource in a
// block.
var (
	blockShapes = map[string]shape{
		"type": aString, "text": aString, "mimeType": aString, "data": isBase64, "uri": aString, "name": aString, "title": aString,
		"description": aString, "resource": anObject, "_meta": anObject, "size": isDecoded, "annotations": isDecoded, "icons": isDecoded,
		"id": aString, "input": anObject, "toolUseId": aString, "content": isDecoded, "isError": isDecoded,
	}
	resourceShapes = map[string]shape{"uri": aString, "mimeType": aString, "text": aString, "blob": isBase64, "_meta": anObject}
)

// checkBlock checks one block. It uses fields as a buffer.
func checkBlock(raw json.RawMessage, fields map[string]json.RawMessage) error {
	if err := readFields(raw, blockShapes, fields); err != nil {
		return err
	}
	if !isString(fields["type"]) {
		return wants("type", "a string")
	}
	kind, err := unquote(fields["type"])
	if err != nil {
		return err
	}
	names, known := needed[kind]
	if !known {
		return fmt.Errorf("type: there is none called %q", brief.Cut(kind, maxNamed))
	}
	resource := fields["resource"]
	switch err := wantStrings(fields, names); {
	case err != nil:
		return err
	case kind == "resource" && resource == nil:
		return wants("resource", "an object")
	case resource == nil:
		return nil
	}
	if err := readFields(resource, resourceShapes, fields); err != nil {
		return fmt.Errorf("resource.%w", err)
	}
	if kind != "resource" {
		return nil
	}
	body := "text"
	if _, has := fields["blob"]; has {
		body = "blob"
	}
	if err := wantStrings(fields, []string{"uri", body}); err != nil {
		return fmt.Errorf("resource.%w", err)
	}
	return nil
}

// readFields sets fields to the fields of an object that have a shape, and checks them. A field that
// is null counts as missing.
func readFields(raw json.RawMessage, shapes map[string]shape, fields map[string]json.RawMessage) (err error) {
	clear(fields)
	if !rawjson.IsObject(raw) {
		return errors.New("want an object")
	}
	var decode []byte
	_ = eachMember(raw, func(key string, value json.RawMessage) bool { // it was checked to be valid
		want, known := shapes[key]
		if delete(fields, key); !known || string(value) == "null" {
			return true
		}
		fields[key] = value
		switch {
		case (want == aString || want == isBase64) && !isString(value):
			err = wants(key, "a string")
		case want == isBase64 && !validBase64(value):
			err = wants(key, "base64")
		case want == anObject && !rawjson.IsObject(value):
			err = wants(key, "an object")
		case want == isDecoded:
			decode = append(append(append(append(decode, `,"`...), key...), `":`...), value...)
		}
		return err == nil
	})
	switch {
	case err != nil || decode == nil:
		return err
	case rawjson.Values(decode) > maxDecoded:
		return fmt.Errorf("its annotations, icons and the like have more than %d values", maxDecoded)
	}
	block := slices.Concat([]byte(`{"content":[{"type":"text"`), decode, []byte("}]}"))
	return new(mcp.CallToolResult).UnmarshalJSON(block)
}

func wants(field, shape string) error { return fmt.Errorf("%s: want %s", field, shape) }

func wantStrings(object map[string]json.RawMessage, names []string) error {
	for _, name := range names {
		if !isString(object[name]) {
			return wants(name, "a string")
		}
	}
	return nil
}

func isString(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '"' }

// validBase64 reports whether a JSON string is base64.
func validBase64(raw json.RawMessage) bool {
	text := raw[1 : len(raw)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		decoded, err := unquote(raw)
		if err != nil {
			return false
		}
		text = []byte(decoded)
	}
	_, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text)))
	return err == nil
}

// rawContent is a content block that is passed on unchanged.
type rawContent struct {
	mcp.Content // nil: the block is only marshalled
	json        json.RawMessage
}

// Weight returns how many bytes there are to work on.
func (c rawContent) Weight() int { return len(c.json) }

// MarshalJSON returns the block unchanged.
func (c rawContent) MarshalJSON() ([]byte, error) { return c.json, nil }
