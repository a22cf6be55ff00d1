package wire

// The methods of MCP that have a name here.
const (
	MethodInitialize  = "initialize"
	MethodPing        = "ping"
	MethodDiscover    = "server/discover"
	MethodCall        = "tools/call"
	MethodList        = "tools/list"
	MethodRead        = "resources/read"
	MethodSubscribe   = "resources/subscribe"
	MethodUnsubscribe = "resources/unsubscribe"
	MethodGetPrompt   = "prompts/get"
	MethodComplete    = "completion/complete"
	MethodSetLevel    = "logging/setLevel"
	MethodListen      = "subscriptions/listen"
	MethodCancelled   = "notifications/cancelled"

	// What the server asks and tells.
	MethodSample   = "sampling/createMessage"
	MethodElicit   = "elicitation/create"
	MethodRoots    = "roots/list"
	MethodProgress = "notifications/progress"
	MethodMessage  = "notifications/message"
	MethodUpdated  = "notifications/resources/updated"
)
