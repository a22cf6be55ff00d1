package manifest

import "github.com/modelcontextprotocol/go-sdk/mcp"

// ClassesOf is what the calls of a tool do that an MCP server describes only by
// its hints (SPEC-TOOLS 3.5). A server that gives none is not believed to only
// read. hints may be nil.
func ClassesOf(hints *mcp.ToolAnnotations) []OperationClass {
	var classes []OperationClass
	if hints == nil || !hints.ReadOnlyHint {
		classes = append(classes, ClassWrite)
	}
	if hints != nil && hints.DestructiveHint != nil && *hints.DestructiveHint {
		classes = append(classes, ClassDelete)
	}
	if len(classes) == 0 {
		classes = append(classes, ClassRead)
	}
	return classes
}
