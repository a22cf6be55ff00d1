package telemetry

// Names of spans and their attributes: OpenTelemetry's conventions for MCP
// (semantic-conventions-genai, docs/gen-ai/mcp.md), which are still in development, and three names
// of Orla's own. All are in this file, so that changes are easy.
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
	attrCode     = "orla.code"     // the code of the log, if the call failed
	attrAttempts = "orla.attempts" // number of attempts, if more than one

	methodCall  = "tools/call"
	executeTool = "execute_tool"
	toolError   = "tool_error" // error.type of a result with isError

	// "pipe" is the convention's name for stdio.
	overPipe, overTCP, overUnix, protocolHTTP = "pipe", "tcp", "unix", "http"

	attrService, attrServiceVersion = "service.name", "service.version"
	serviceName                     = "orla"

	scope = "github.com/orla-project/orla"
)
