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

// lists are the capabilities that have a list.
var lists = []string{"tools", "resources", "prompts"}

// Checked returns what is used of a hello once its name and its version were checked: the rest may be as large as a message.
func (h Hello) Checked() (used Hello) {
	for _, name := range lists {
		if slices.Contains(h.Capabilities, name) {
			used.Capabilities = append(used.Capabilities, name)
		}
	}
	return used
}

// OffersLists reports whether the hello has a capability with a list.
func (h Hello) OffersLists() bool {
	return len(h.Checked().Capabilities) > 0
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
