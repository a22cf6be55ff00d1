package results

import (
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// printed is a block as a tool wrote it.
type printed struct {
	mcp.Content
	json string
}

func (p printed) MarshalJSON() ([]byte, error) { return []byte(p.json), nil }

// SPEC I2: what a tool wrote in MCP's form itself counts in response_bytes as any
// other answer does.
func TestI2WhatAToolWroteItselfHasASize(t *testing.T) {
	block := printed{json: `{"type":"text","text":"0123456789"}`}
	if got := Payload(&mcp.CallToolResult{Content: []mcp.Content{block}}); got != len(block.json) {
		t.Errorf("its size is %d, want %d", got, len(block.json))
	}
}
