package protocol

import (
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Hello is the params of orla.hello (RFC 2 §9).
type Hello struct {
	Name         string   `json:"name"`
	Version      string   `json:"version"`
	Capabilities []string `json:"capabilities"`
}

// OffersLists reports whether the hello has a capability with a list.
func (h Hello) OffersLists() bool {
	return slices.ContainsFunc(h.Capabilities, func(c string) bool {
		return c == "tools" || c == "resources" || c == "prompts"
	})
}

// Capability converts the capabilities of a hello to those of MCP.
func (h Hello) Capability() *mcp.ServerCapabilities {
	caps := &mcp.ServerCapabilities{}
	for _, name := range h.Capabilities {
		switch name {
		case "tools":
			caps.Tools = &mcp.ToolCapabilities{}
		case "resources":
			caps.Resources = &mcp.ResourceCapabilities{}
		case "prompts":
			caps.Prompts = &mcp.PromptCapabilities{}
		}
	}
	return caps
}
