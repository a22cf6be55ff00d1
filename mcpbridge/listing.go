package mcpbridge

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// listing is what is prepared for tools/list and tools/call. It is never changed.
type listing struct {
	tools map[string]*mcp.Tool
	json  map[*mcp.Tool]json.RawMessage // a tool as it is sent
}

// next returns the listing of tools. What was prepared for those that stay is kept.
func (l *listing) next(tools map[string]*mcp.Tool) *listing {
	n := &listing{tools: make(map[string]*mcp.Tool, len(tools)), json: make(map[*mcp.Tool]json.RawMessage, len(tools))}
	for name, t := range tools {
		n.tools[name] = t
		if l != nil && l.json[t] != nil {
			n.json[t] = l.json[t]
		} else if raw, err := json.Marshal(t); err == nil { // otherwise the SDK refuses the tool too
			n.json[t] = raw
		}
	}
	return n
}

// structured reports whether clients expect a structured answer of a tool.
func (l *listing) structured(tool string) bool {
	t := l.tools[tool]
	return t != nil && t.OutputSchema != nil
}

// prepared answers tools/list with tools that were put into JSON when they
// changed: doing it for every client each time costs more than all the rest.
func (b *Bridge) prepared(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		res, err := next(ctx, method, req)
		if list, ok := res.(*mcp.ListToolsResult); ok && err == nil {
			return &preparedList{list, b.listing.Load()}, nil
		}
		return res, err
	}
}

// preparedList is a tools/list result whose tools are in JSON already. The SDK
// still sets its other members.
type preparedList struct {
	*mcp.ListToolsResult
	from *listing
}

// MarshalJSON returns what the SDK's own result would give.
func (p *preparedList) MarshalJSON() ([]byte, error) {
	empty := *p.ListToolsResult
	empty.Tools = []*mcp.Tool{}
	raw, err := json.Marshal(&empty)
	const end = `"tools":[]}` // the last member; a test holds it
	if err != nil || !bytes.HasSuffix(raw, []byte(end)) {
		return json.Marshal(p.ListToolsResult)
	}
	size := len(raw)
	for _, t := range p.Tools {
		size += len(p.from.json[t]) + 1
	}
	out := make([]byte, 0, size)
	out = append(out, raw[:len(raw)-2]...)
	for i, t := range p.Tools {
		one := p.from.json[t]
		if one == nil { // it came after the listing was taken
			if one, err = json.Marshal(t); err != nil {
				return nil, err
			}
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	return append(out, "]}"...), nil
}
