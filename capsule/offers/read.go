package offers

import (
	"encoding/json"
	"errors"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/internal/mcp/rawjson"
)

// meta is where what a list has of resources, of templates or of prompts has its _meta.
func meta(item any) *mcp.Meta {
	switch item := item.(type) {
	case *mcp.Resource:
		return &item.Meta
	case *mcp.ResourceTemplate:
		return &item.Meta
	case *mcp.Prompt:
		return &item.Meta
	}
	return new(mcp.Meta)
}

// read decodes an item of a list, but for what may be anything and stays the JSON that it is,
// since decoded it takes many times its bytes: the schemas of a tool, nil for none, and what
// is in its _meta.
func read(item json.RawMessage, to any, meta *mcp.Meta) (input, output json.RawMessage, err error) {
	if !rawjson.IsObject(item) {
		return nil, nil, errors.New("an item that is not an object")
	}
	var its json.RawMessage
	rest := []byte{'{'}
	rawjson.AllMembers(item, func(key []byte, value json.RawMessage) bool {
		switch name := string(key); { // encoding/json takes names in any case
		case string(value) == "null":
		case strings.EqualFold(name, "_meta"):
			its = value
		case strings.EqualFold(name, "inputSchema"):
			input = value
		case strings.EqualFold(name, "outputSchema"):
			output = value
		default:
			if len(rest) > 1 {
				rest = append(rest, ',')
			}
			rest = append(append(rawjson.AppendQuote(rest, name), ':'), value...)
		}
		return true
	})
	if err := json.Unmarshal(append(rest, '}'), to); err != nil || its == nil {
		return input, output, err
	}
	*meta = mcp.Meta{}
	if !rawjson.AllMembers(its, func(key []byte, value json.RawMessage) bool {
		(*meta)[string(key)] = value
		return true
	}) {
		return nil, nil, errors.New("its _meta is not an object")
	}
	return input, output, nil
}
