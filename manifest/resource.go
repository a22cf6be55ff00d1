package manifest

import (
	"time"

	"github.com/orla-project/orla/internal/service/secret"
)

// The kinds of tools that tool resources declare (SPEC-TOOLS 1.2, 3). An
// McpServer is a Capsule; one that is far away has a Remote.
const (
	HTTP     Kind = "http"
	External Kind = "external"
	GRPC     Kind = "grpc"
	Webhook  Kind = "webhook-callback"
	MCP      Kind = "mcp" // one tool of an McpServer, under a name of its own
	Cli      Kind = "cli"
	Wasm     Kind = "wasm"
)

// Resource is what a Tool resource says in addition to what every tool has (SPEC-TOOLS 1.2). Every default is
// filled in.
type Resource struct {
	Namespace string
	// Endpoint is a URL: http or https, or grpc (plain) or grpcs (TLS) with a
	// host and a port. "" for type mcp.
	Endpoint         string
	Capabilities     []string
	OperationClasses []OperationClass
	Risk             Risk
	Auth             Auth
	CLI              *CLI  // of type cli
	WASM             *WASM // of type wasm
	// Server and ServerTool are the McpServer and the tool that a tool of
	// type mcp is, by the server's own name for it.
	Server, ServerTool string
}

// Remote is an MCP server that is reached over Streamable HTTP (SPEC-TOOLS 3.5).
type Remote struct {
	Endpoint string // an http or https URL
	Auth     Auth
}

// SecretEnv is a variable whose value is a secret, found at each start.
type SecretEnv struct {
	Name   string
	Secret secret.Ref
}

// Auth says how a call is authenticated (SPEC-TOOLS 5). The zero Auth is none.
type Auth struct {
	Profile    AuthProfile
	Secret     secret.Ref // of oauth2_client_credentials: its Key is not used; of oauth2_authorization_code: the client's secret, if it has one
	HeaderName string     // of api_key_header
	TokenURL   string     // of oauth2_client_credentials
	Scopes     []string
	ClientID   string // of oauth2_authorization_code; "" for none
	Issuer     string // of oauth2_authorization_code: where people log in; "" for the first that the server names
}

// IsZero reports whether calls are not authenticated.
func (a Auth) IsZero() bool { return a.Profile == "" }

// AuthProfile is how a secret becomes a header.
type AuthProfile string

// The values of auth.profile.
const (
	AuthBearer AuthProfile = "bearer"
	AuthAPIKey AuthProfile = "api_key_header"
	AuthBasic  AuthProfile = "basic"
	AuthOAuth2 AuthProfile = "oauth2_client_credentials"
	// AuthLogin is for McpServers alone: a person logs in by orla login.
	AuthLogin AuthProfile = "oauth2_authorization_code"
)

// Values lists what auth.profile of a Tool may be.
func (AuthProfile) Values() []string {
	return []string{string(AuthBearer), string(AuthAPIKey), string(AuthBasic), string(AuthOAuth2)}
}

// Risk is how much harm a tool can do.
type Risk string

// The values of risk_level.
const (
	RiskLow      Risk = "low"
	RiskMedium   Risk = "medium"
	RiskHigh     Risk = "high"
	RiskCritical Risk = "critical"
)

// Values lists what risk_level may be.
func (Risk) Values() []string {
	return []string{string(RiskLow), string(RiskMedium), string(RiskHigh), string(RiskCritical)}
}

// OperationClass is what a call does.
type OperationClass string

// The values of operation_classes.
const (
	ClassRead   OperationClass = "read"
	ClassWrite  OperationClass = "write"
	ClassDelete OperationClass = "delete"
	ClassAdmin  OperationClass = "admin"
)

// Values lists what operation_classes may hold.
func (OperationClass) Values() []string {
	return []string{string(ClassRead), string(ClassWrite), string(ClassDelete), string(ClassAdmin)}
}

// Retry says which pauses stand between the attempts of a call (SPEC-TOOLS 6).
// The zero Retry is one attempt.
type Retry struct {
	MaxAttempts int // 0 and 1: no attempt follows the first
	Backoff     time.Duration
	MaxBackoff  time.Duration
	Jitter      Jitter
}

// Jitter is how a pause is made random.
type Jitter string

// The values of runtime.retry.jitter.
const (
	JitterNone  Jitter = "none"
	JitterFull  Jitter = "full"
	JitterEqual Jitter = "equal"
)

// Values lists what runtime.retry.jitter may be.
func (Jitter) Values() []string {
	return []string{string(JitterNone), string(JitterFull), string(JitterEqual)}
}
