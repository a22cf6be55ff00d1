package manifest

import (
	"encoding/json"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Compact is a Tool that a service answers, in a sixth of the memory: most of such a Tool is empty.
type Compact struct {
	name, source  string
	kind          Kind
	description   string
	input, output json.RawMessage
	annotations   *mcp.ToolAnnotations
	timeout       time.Duration
	retry         Retry
	isolation     IsolationMode
	resource      *Resource
}

// Compact returns the tool in a form that takes less memory, and shares what t points to. Of a tool of another kind it has only
// a part: whether it has all shows if Tool gives the same again.
func (t *Tool) Compact() Compact {
	return Compact{
		name: t.Name, source: t.Source, kind: t.Kind, description: t.Description, input: t.InputSchema, output: t.OutputSchema,
		annotations: t.Annotations, timeout: t.Run.Timeout, retry: t.Retry, isolation: t.Isolation.Mode, resource: t.Resource,
	}
}

// Tool returns the tool.
func (c *Compact) Tool() Tool {
	return Tool{
		Name: c.name, Source: c.source, Kind: c.kind, Description: c.description, InputSchema: c.input, OutputSchema: c.output,
		Annotations: c.annotations, Run: Run{Timeout: c.timeout}, Retry: c.retry, Isolation: Isolation{Mode: c.isolation}, Resource: c.resource,
	}
}
