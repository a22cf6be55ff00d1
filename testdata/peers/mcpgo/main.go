// Mcpgo is a gateway made with the library github.com/mark3labs/mcp-go, as gateways in Go are: it starts
// an MCP server on stdio, and serves the tools of that over Streamable HTTP on a port of the loopback
// interface. make bench compares Orla with it.
//
//	mcpgo PORT COMMAND [ARGUMENT ...]
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: mcpgo PORT COMMAND [ARGUMENT ...]")
		os.Exit(2)
	}
	if err := serve(context.Background(), os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "mcpgo:", err)
		os.Exit(1)
	}
}

func serve(ctx context.Context, port, command string, args []string) error {
	behind, err := client.NewStdioMCPClient(command, nil, args...)
	if err != nil {
		return fmt.Errorf("start %s: %w", command, err)
	}
	defer func() { _ = behind.Close() }()
	begin := mcp.InitializeRequest{}
	begin.Params.ProtocolVersion = mcp.LATEST_PROTOCOL_VERSION
	begin.Params.ClientInfo = mcp.Implementation{Name: "mcpgo", Version: "1"}
	if _, err := behind.Initialize(ctx, begin); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	listed, err := behind.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return fmt.Errorf("list the tools: %w", err)
	}
	front := server.NewMCPServer("mcpgo", "1")
	for _, tool := range listed.Tools {
		front.AddTool(tool, behind.CallTool)
	}
	return server.NewStreamableHTTPServer(front).Start("127.0.0.1:" + port)
}
