package resource

import (
	"time"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// APIVersion is the only one that there is.
const APIVersion = "orloj.dev/v1"

// The kinds of resources (SPEC-TOOLS 1.1).
const (
	kindTool      = "Tool"
	kindMCPServer = "McpServer"
	kindSecret    = "Secret"
)

// servedKinds are the kinds that something comes of. rules are the others.
var servedKinds = []string{kindTool, kindMCPServer, kindSecret}

// toolResource is a resource of kind Tool, key by key (SPEC-TOOLS 1.2).
type toolResource struct {
	APIVersion versionKey   `json:"apiVersion" jsonschema:"Always orloj.dev/v1"`
	Kind       toolKind     `json:"kind" jsonschema:"What the document declares"`
	Metadata   metadataKeys `json:"metadata" jsonschema:"What it is called"`
	Spec       toolSpec     `json:"spec" jsonschema:"What the tool is"`
}

// toolSpec are the keys of spec, with a field for each.
type toolSpec struct {
	Type             toolType                  `json:"type,omitempty" jsonschema:"How the tool is called. Default http"`
	Endpoint         string                    `json:"endpoint,omitempty" jsonschema:"Where the service is: an http or https URL; of type grpc host:port, grpc:// (plain) or grpcs:// (TLS, as without either)"`
	Description      string                    `json:"description,omitempty" jsonschema:"What the tool does and when to use it. Models read this."`
	InputSchema      keys.Schema               `json:"input_schema,omitempty" jsonschema:"JSON Schema of the arguments, or the short form NAME: TYPE, with TYPE? for an argument that may be left out"`
	OutputSchema     keys.Schema               `json:"output_schema,omitempty" jsonschema:"JSON Schema of the result, which must be JSON that fits it"`
	Capabilities     []string                  `json:"capabilities,omitempty" jsonschema:"What the tool can do, for permissions"`
	OperationClasses []manifest.OperationClass `json:"operation_classes,omitempty" jsonschema:"What a call does; clients are told what is written here. Default read; with risk_level high or critical: write"`
	RiskLevel        manifest.Risk             `json:"risk_level,omitempty" jsonschema:"How much harm the tool can do. Default low"`
	Runtime          toolRuntimeKeys           `json:"runtime,omitzero" jsonschema:"How the tool is called"`
	Auth             authKeys                  `json:"auth,omitzero" jsonschema:"How calls are authenticated"`
	MCPServerRef     string                    `json:"mcp_server_ref,omitempty" jsonschema:"Of type mcp: the name of the McpServer"`
	MCPToolName      string                    `json:"mcp_tool_name,omitempty" jsonschema:"Of type mcp: the tool, as the server calls it"`
	CLI              cliKeys                   `json:"cli,omitzero" jsonschema:"Of type cli: the command"`
	WASM             wasmKeys                  `json:"wasm,omitzero" jsonschema:"Of type wasm: the module"`
}

// serverResource is a resource of kind McpServer (SPEC-TOOLS 3.5).
type serverResource struct {
	APIVersion versionKey   `json:"apiVersion" jsonschema:"Always orloj.dev/v1"`
	Kind       serverKind   `json:"kind" jsonschema:"What the document declares"`
	Metadata   metadataKeys `json:"metadata" jsonschema:"What it is called"`
	Spec       serverSpec   `json:"spec" jsonschema:"Where the server is, and which of its tools are served"`
}

type serverSpec struct {
	Transport          transport         `json:"transport" jsonschema:"stdio: a command that is kept running; http: a server that runs elsewhere"`
	Command            string            `json:"command,omitempty" jsonschema:"Of stdio: the program, by its name in PATH or by its path; one with a slash counts from the file's folder"`
	Args               keys.Args         `json:"args,omitempty" jsonschema:"Of stdio: its arguments"`
	Env                []serverEnv       `json:"env,omitempty" jsonschema:"Of stdio: environment variables to set"`
	Endpoint           string            `json:"endpoint,omitempty" jsonschema:"Of http: the server's URL"`
	Auth               serverAuthKeys    `json:"auth,omitzero" jsonschema:"Of http: how requests are authenticated"`
	Protocol           manifest.Protocol `json:"protocol,omitempty" jsonschema:"Which MCP it is spoken to in: auto (2026-07-28 if it has that), 2026-07-28, or initialize (older versions). Default auto"`
	Pin                manifest.Pin      `json:"pin,omitempty" jsonschema:"Definitions of tools and prompts that differ from the accepted ones: off (not noticed), warn (served, and reported) or hold (not served until orla pins approve). Default: the configured pin"`
	ToolFilter         toolFilterKeys    `json:"tool_filter,omitzero" jsonschema:"Which tools are served. Default: all"`
	Reconnect          reconnectKeys     `json:"reconnect,omitzero" jsonschema:"When to start or connect again"`
	IdleTimeout        yamldoc.Duration  `json:"idle_timeout,omitempty" jsonschema:"Stop the server, or end the session, after this long without a call. Default: never"`
	DefaultToolRuntime serverRuntime     `json:"default_tool_runtime,omitzero" jsonschema:"How the server's tools are called"`
}

type serverEnv struct {
	Name      string   `json:"name" jsonschema:"Name of the variable"`
	Value     *envText `json:"value,omitempty" jsonschema:"What it is set to"`
	SecretRef string   `json:"secretRef,omitempty" jsonschema:"The secret that it is set to: [namespace/]name[:key]"`
}

type toolFilterKeys struct {
	Include []string `json:"include,omitempty" jsonschema:"The tools to serve, as the server calls them"`
}

type reconnectKeys struct {
	MaxAttempts int              `json:"max_attempts,omitempty" jsonschema:"Failures in a row after which a server over stdio stays stopped and a remote one is tried at a low rate; 0 means no limit. Default 3"`
	Backoff     yamldoc.Duration `json:"backoff,omitempty" jsonschema:"First pause; each one after it is twice as long. Default 2s"`
}

// secretResource is a resource of kind Secret (SPEC-TOOLS 5.1). What it holds
// may stand at the top level as well, as it does in Kubernetes.
type secretResource struct {
	APIVersion versionKey   `json:"apiVersion" jsonschema:"Always orloj.dev/v1"`
	Kind       secretKind   `json:"kind" jsonschema:"What the document declares"`
	Metadata   metadataKeys `json:"metadata" jsonschema:"What it is called"`
	Spec       secretKeys   `json:"spec,omitzero" jsonschema:"What it holds"`
	secretKeys
}

type secretKeys struct {
	Data       keys.Env `json:"data,omitempty" jsonschema:"Values by their keys, in base64"`
	StringData keys.Env `json:"stringData,omitempty" jsonschema:"Values by their keys, as they are. They win over those of data"`
}

// metadataKeys are the same for every kind.
type metadataKeys struct {
	Name        string   `json:"name" jsonschema:"Name of the resource: 1 to 64 of A-Z a-z 0-9 _ . and -; of a Tool as clients call it"`
	Namespace   string   `json:"namespace,omitempty" jsonschema:"Where its secrets are looked for. Default: default"`
	Labels      keys.Env `json:"labels,omitempty" jsonschema:"Informational only"`
	Annotations keys.Env `json:"annotations,omitempty" jsonschema:"Informational only"`
}

// toolRuntimeKeys are spec.runtime, and part of default_tool_runtime.
type toolRuntimeKeys struct {
	Timeout       yamldoc.Duration       `json:"timeout,omitempty" jsonschema:"Longest time of one attempt of a call: 30s, 1m30s or a number of seconds. Default 30s"`
	IsolationMode manifest.IsolationMode `json:"isolation_mode,omitempty" jsonschema:"Where a call runs. Default none; of type cli: container; of type wasm: wasm"`
	Retry         keys.Retry             `json:"retry,omitzero" jsonschema:"Whether a call that failed is tried again"`
}

// serverRuntime is default_tool_runtime: of a server over stdio it says as well
// where its process lives.
type serverRuntime struct {
	toolRuntimeKeys
	Image           string         `json:"image,omitempty" jsonschema:"Of stdio: image of the container that the server lives in. Default: the configured tool_container_image"`
	ImagePullSecret string         `json:"image_pull_secret,omitempty" jsonschema:"Of stdio: the secret to pull it with: [namespace/]name[:key]"`
	Network         string         `json:"network,omitempty" jsonschema:"Of stdio: the container's network. Default none"`
	Resources       keys.Resources `json:"resources,omitzero" jsonschema:"Of stdio: what the server and all that it starts may take together"`
}

// isolation are the keys that say where the server's process lives.
func (k serverRuntime) isolation() keys.Isolation {
	return keys.Isolation{Mode: k.IsolationMode, Image: k.Image, PullSecret: k.ImagePullSecret, Network: k.Network, Resources: k.Resources, Capsule: true}
}

type authKeys struct {
	Profile    manifest.AuthProfile `json:"profile,omitempty" jsonschema:"How the secret becomes a header. Default bearer"`
	SecretRef  string               `json:"secretRef,omitempty" jsonschema:"The secret: [namespace/]name[:key]"`
	HeaderName string               `json:"headerName,omitempty" jsonschema:"Of api_key_header: the header"`
	TokenURL   string               `json:"tokenURL,omitempty" jsonschema:"Of oauth2_client_credentials: where tokens are had"`
	Scopes     []string             `json:"scopes,omitempty" jsonschema:"Of oauth2_client_credentials: what the token is to allow"`
}

// serverAuthKeys are the authKeys of an McpServer, which a person may log in to.
type serverAuthKeys struct {
	Profile    serverProfile `json:"profile,omitempty" jsonschema:"How the secret becomes a header; oauth2_authorization_code: a person logs in by orla login. Default bearer"`
	SecretRef  string        `json:"secretRef,omitempty" jsonschema:"The secret: [namespace/]name[:key]"`
	HeaderName string        `json:"headerName,omitempty" jsonschema:"Of api_key_header: the header"`
	TokenURL   string        `json:"tokenURL,omitempty" jsonschema:"Of oauth2_client_credentials: where tokens are had"`
	Scopes     []string      `json:"scopes,omitempty" jsonschema:"Of the profiles oauth2_…: what the token is to allow"`
	ClientID   string        `json:"clientID,omitempty" jsonschema:"Of oauth2_authorization_code: the id of a client that is registered at the issuer"`
	Issuer     string        `json:"issuer,omitempty" jsonschema:"Of oauth2_authorization_code: the issuer to log in at, which the server must name too; clientID is used with no other"`
}

// shared returns the keys that a Tool has too.
func (k serverAuthKeys) shared() authKeys {
	return authKeys{Profile: manifest.AuthProfile(k.Profile), SecretRef: k.SecretRef, HeaderName: k.HeaderName, TokenURL: k.TokenURL, Scopes: k.Scopes}
}

// serverProfile is the auth.profile of an McpServer.
type serverProfile string

// Values lists what auth.profile of an McpServer may be.
func (serverProfile) Values() []string {
	return append(manifest.AuthProfile("").Values(), string(manifest.AuthLogin))
}

// toolRuntimeDefaults is what holds for the keys that a file leaves out. What
// isolation_mode is, depends on others.
func toolRuntimeDefaults() toolRuntimeKeys {
	return toolRuntimeKeys{Timeout: yamldoc.Duration(30 * time.Second), Retry: keys.RetryDefaults()}
}

func toolDefaults() toolSpec {
	return toolSpec{
		Type: toolType(manifest.HTTP), RiskLevel: manifest.RiskLow, Runtime: toolRuntimeDefaults(),
		CLI:  cliKeys{Network: "none", Output: "stdout"},
		WASM: wasmKeys{Entrypoint: "run", MaxMemoryBytes: 64 << 20, Fuel: 1_000_000},
	}
}

func serverDefaults() serverSpec {
	return serverSpec{
		Protocol:           manifest.ProtocolAuto,
		Reconnect:          reconnectKeys{MaxAttempts: 3, Backoff: yamldoc.Duration(2 * time.Second)},
		DefaultToolRuntime: serverRuntime{toolRuntimeKeys: toolRuntimeDefaults()},
	}
}

type versionKey string

// Values lists what apiVersion may be.
func (versionKey) Values() []string { return []string{APIVersion} }

type toolKind string

// Values lists what kind may be in a Tool.
func (toolKind) Values() []string { return []string{kindTool} }

type serverKind string

// Values lists what kind may be in an McpServer.
func (serverKind) Values() []string { return []string{kindMCPServer} }

type secretKind string

// Values lists what kind may be in a Secret.
func (secretKind) Values() []string { return []string{kindSecret} }

// toolType is how a Tool is called.
type toolType string

const (
	typeCLI  toolType = "cli"
	typeWASM toolType = "wasm"
)

// Values lists what spec.type may be.
func (toolType) Values() []string {
	return []string{string(manifest.HTTP), string(manifest.External), string(manifest.GRPC), string(manifest.Webhook), string(manifest.MCP), string(typeCLI), string(typeWASM)}
}

type transport string

const (
	transportStdio transport = "stdio"
	transportHTTP  transport = "http"
)

// Values lists what spec.transport may be.
func (transport) Values() []string { return []string{string(transportStdio), string(transportHTTP)} }

// envText is a value of a variable. It may be written without quotes: 1, true.
type envText string

// JSONSchema allows the scalars that stand for their own text.
func (envText) JSONSchema() string { return `{"type":["string","number","boolean"]}` }
