package telemetry

// What spans and their attributes are called: OpenTelemetry's conventions for
// MCP (semantic-conventions-genai, docs/gen-ai/mcp.md), which are still in
// development and so stand in this file alone, and three names of our own.
const (
	attrMethod    = "mcp.method.name"
	attrTool      = "gen_ai.tool.name"
	attrOperation = "gen_ai.operation.name"
	attrSession   = "mcp.session.id"
	attrVersion   = "mcp.protocol.version"
	attrRequest   = "jsonrpc.request.id"
	attrTransport = "network.transport"
	attrProtocol  = "network.protocol.name"
	attrError     = "error.type"
	attrStatus    = "rpc.response.status_code" // of a JSON-RPC error

	attrCall     = "orla.call_id"  // the call_id of the log
	attrCode     = "orla.code"     // the code of the log, of a call that failed
	attrAttempts = "orla.attempts" // of a call that took more than one

	methodCall  = "tools/call"
	executeTool = "execute_tool"
	toolError   = "tool_error" // error.type of a result with isError

	// "pipe" is the convention's word for stdio.
	overPipe, overTCP, overUnix, protocolHTTP = "pipe", "tcp", "unix", "http"

	attrService, attrServiceVersion = "service.name", "service.version"
	serviceName                     = "orla"

	scope = "github.com/orla-project/orla"
)
