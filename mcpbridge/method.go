package mcpbridge

// The methods of MCP that have a name here.
const (
	methodInitialize  = "initialize"
	methodPing        = "ping"
	methodDiscover    = "server/discover"
	methodCall        = "tools/call"
	methodList        = "tools/list"
	methodRead        = "resources/read"
	methodSubscribe   = "resources/subscribe"
	methodUnsubscribe = "resources/unsubscribe"
	methodGetPrompt   = "prompts/get"
	methodComplete    = "completion/complete"
	methodSetLevel    = "logging/setLevel"
	methodListen      = "subscriptions/listen"
	methodCancelled   = "notifications/cancelled"

	// What the server asks and tells.
	methodSample   = "sampling/createMessage"
	methodElicit   = "elicitation/create"
	methodRoots    = "roots/list"
	methodProgress = "notifications/progress"
	methodMessage  = "notifications/message"
	methodUpdated  = "notifications/resources/updated"
)
