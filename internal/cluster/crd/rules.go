package crd

import (
	"maps"
	"strings"
)

// limits are what the reader of files refuses and a schema can say, by the path of a value. The lengths of lists are
// bounded where a rule is for each item: the API server bounds what rules may cost.
var limits = map[string]object{
	"Tool.spec.endpoint":                   {"maxLength": maxURL},
	"Tool.spec.mcp_server_ref":             {"pattern": name},
	"Tool.spec.mcp_tool_name":              {"minLength": 1},
	"Tool.spec.capabilities[]":             {"pattern": `\S`},
	"Tool.spec.auth.secretRef":             {"pattern": secretRef},
	"Tool.spec.auth.headerName":            {"pattern": header},
	"Tool.spec.auth.tokenURL":              {"pattern": webURL},
	"Tool.spec.auth.scopes[]":              {"pattern": scope},
	"Tool.spec.cli.command":                {"pattern": program},
	"Tool.spec.cli.image":                  {"pattern": image},
	"Tool.spec.cli.image_pull_secret":      {"pattern": secretRef},
	"Tool.spec.cli.retry_exit_codes[]":     {"minimum": 1, "maximum": 255},
	"Tool.spec.wasm.module":                {"minLength": 1, "maxLength": maxURL},
	"Tool.spec.wasm.entrypoint":            {"minLength": 1},
	"Tool.spec.wasm.fuel":                  {"minimum": 1},
	"Tool.spec.runtime.retry.max_attempts": {"minimum": 1},

	"McpServer.spec.command":                                 {"pattern": program},
	"McpServer.spec.env":                                     {"maxItems": 1000},
	"McpServer.spec.endpoint":                                {"pattern": webURL},
	"McpServer.spec.auth.secretRef":                          {"pattern": secretRef},
	"McpServer.spec.auth.headerName":                         {"pattern": header},
	"McpServer.spec.auth.tokenURL":                           {"pattern": webURL},
	"McpServer.spec.auth.issuer":                             {"pattern": webURL},
	"McpServer.spec.auth.scopes[]":                           {"pattern": scope},
	"McpServer.spec.tool_filter.include[]":                   {"minLength": 1},
	"McpServer.spec.reconnect.max_attempts":                  {"minimum": 0},
	"McpServer.spec.default_tool_runtime.image":              {"pattern": image},
	"McpServer.spec.default_tool_runtime.retry.max_attempts": {"minimum": 1},

	"AgentRole.spec.permissions[]":               {"pattern": right},
	"AgentPolicy.spec.target_systems[]":          {"pattern": `\S`},
	"AgentPolicy.spec.target_tasks[]":            {"pattern": `\S`},
	"AgentPolicy.spec.blocked_tools[]":           {"pattern": `\S`},
	"ToolPermission.spec.tool_ref":               {"pattern": `\S`},
	"ToolPermission.spec.target_agents[]":        {"pattern": `\S`},
	"ToolPermission.spec.required_permissions[]": {"pattern": right},
	"ToolPermission.spec.operation_rules":        {"maxItems": 1000},
}

// The forms of values. Each takes at least what the reader takes.
const (
	maxURL    = 4096
	name      = `^[A-Za-z0-9_.-]{1,64}$`
	secretRef = `^([A-Za-z0-9_.-]+/)?[A-Za-z0-9_.-]+(:[A-Za-z0-9_.-]+)?$`
	header    = "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$"
	scope     = `^[!#-\[\]-~]+$`
	program   = `^[^-\x00-\x1f\x7f][^\x00-\x1f\x7f]*$`
	image     = `^[^-\s]\S*$`
	webURL    = `^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\s]+([/?][^\s#]*)?$`
	grpcURL   = `^([A-Za-z]+://)?[^/?#@\s]+:[0-9]+/*$`
)

// right is the form of a permission.
const right = `(?i)^\s*(tool:\s*(\*|[^:*\s]([^:*]*[^:*\s])?)\s*:\s*(invoke|\*)|capability:\s*(\*|[^*\s]([^*]*[^*\s])?))\s*$`

// rule is a rule in CEL.
type rule struct{ rule, message string }

// The values that rules ask for, with the defaults of the reader.
var defaults = strings.NewReplacer(
	"TYPE", "(has(self.type) ? self.type : 'http')",
	"MODE", "(has(self.runtime) && has(self.runtime.isolation_mode) ? self.runtime.isolation_mode : '')",
	"PROFILE", "(has(self.profile) ? self.profile : 'bearer')",
)

// validations are the rules of the reader that are about several keys, by the path of the object that has them.
var validations = map[string][]rule{
	"Tool.spec": {
		{"TYPE in ['http', 'external', 'grpc', 'webhook-callback'] ? has(self.endpoint) : !has(self.endpoint)", "endpoint is required for the types http (the default), external, grpc and webhook-callback, and is for these alone"},
		{"!has(self.endpoint) || TYPE == 'grpc' || self.endpoint.matches(r'" + webURL + "')", "endpoint must be an http or https URL without a user and without a fragment"},
		{"!has(self.endpoint) || TYPE != 'grpc' || self.endpoint.matches(r'" + grpcURL + "')", "endpoint of type grpc must be host:port, grpc://host:port (plain) or grpcs://host:port (TLS)"},
		{"!has(self.wasm) || !has(self.wasm.module) || !self.wasm.module.contains('://') || self.wasm.module.startsWith('https://') || self.wasm.module.startsWith('oci://')", "wasm.module must be a path, https:// or oci://"},
		{"TYPE == 'cli' ? has(self.cli) && has(self.cli.command) : !has(self.cli)", "cli.command is required for type cli, and cli is for this type alone"},
		{"TYPE == 'wasm' ? has(self.wasm) && has(self.wasm.module) : !has(self.wasm)", "wasm.module is required for type wasm, and wasm is for this type alone"},
		{"TYPE == 'mcp' ? has(self.mcp_server_ref) && has(self.mcp_tool_name) : !has(self.mcp_server_ref) && !has(self.mcp_tool_name)", "mcp_server_ref and mcp_tool_name are required for type mcp, and are for this type alone"},
		{"!has(self.auth) || !(TYPE in ['mcp', 'cli'])", "auth does not go with the types mcp and cli"},
		{"MODE == '' || (TYPE == 'wasm' ? MODE == 'wasm' : TYPE == 'cli' ? MODE != 'wasm' : MODE == 'none')", "runtime.isolation_mode does not go with the type: wasm runs as wasm, cli as anything else, and all others run nothing that could be isolated"},
		{"TYPE != 'cli' || !has(self.cli) || has(self.cli.image) || MODE in ['none', 'sandboxed']", "cli.image is required with runtime.isolation_mode container, the default, and kubernetes"},
		{"MODE != 'none' || !has(self.cli) || !has(self.cli.resources)", "cli.resources limits only isolated tools, and runtime.isolation_mode is none"},
		{"MODE != 'kubernetes' || !has(self.cli) || ((!has(self.cli.stdin_from_input) || !self.cli.stdin_from_input) && (!has(self.cli.output) || self.cli.output == 'stdout') && (!has(self.cli.resources) || !has(self.cli.resources.pids_limit)))", "a Job has no stdin, one log of both streams and no limit of processes: stdin_from_input, output and pids_limit do not go with isolation_mode kubernetes"},
	},
	"Tool.spec.auth": append([]rule{
		{"has(self.secretRef)", "secretRef is required"},
		{"PROFILE == 'oauth2_client_credentials' || !has(self.scopes)", "scopes is for profile oauth2_client_credentials"},
	}, ofProfiles...),
	"McpServer.spec": {
		{"self.transport == 'stdio' ? has(self.command) && !has(self.endpoint) && !has(self.auth) : has(self.endpoint) && !has(self.command) && !has(self.args) && !has(self.env)", "transport stdio wants command, args and env, and transport http wants endpoint and auth"},
		{"!has(self.default_tool_runtime) || !has(self.default_tool_runtime.isolation_mode) || self.default_tool_runtime.isolation_mode != 'wasm'", "default_tool_runtime.isolation_mode must not be wasm, which is for Tools of type wasm"},
		{"self.transport == 'stdio' || !has(self.default_tool_runtime) || (!has(self.default_tool_runtime.image) && !has(self.default_tool_runtime.image_pull_secret) && !has(self.default_tool_runtime.network) && !has(self.default_tool_runtime.resources) && (!has(self.default_tool_runtime.isolation_mode) || self.default_tool_runtime.isolation_mode == 'none'))", "transport http runs nothing that could be isolated: default_tool_runtime may have timeout and retry alone"},
	},
	"McpServer.spec.env[]": {
		{"has(self.value) != has(self.secretRef)", "wants either value or secretRef"},
	},
	"McpServer.spec.auth": append([]rule{
		{"PROFILE == 'oauth2_authorization_code' || has(self.secretRef)", "secretRef is required"},
		{"PROFILE in ['oauth2_client_credentials', 'oauth2_authorization_code'] || !has(self.scopes)", "scopes is for the profiles oauth2_client_credentials and oauth2_authorization_code"},
		{"PROFILE == 'oauth2_authorization_code' ? !has(self.secretRef) || has(self.clientID) : !has(self.clientID) && !has(self.issuer)", "clientID and issuer are for profile oauth2_authorization_code, and its secretRef is the secret of a client, which needs clientID"},
	}, ofProfiles...),
	"AgentPolicy.spec": {
		{"(has(self.apply_mode) && self.apply_mode == 'global') || (has(self.target_systems) && size(self.target_systems) > 0) || (has(self.target_tasks) && size(self.target_tasks) > 0)", "it applies to nobody: name target_systems or target_tasks, or write apply_mode: global"},
	},
	"ToolPermission.spec": {
		{"(has(self.apply_mode) && self.apply_mode == 'scoped') == (has(self.target_agents) && size(self.target_agents) > 0)", "target_agents is required with apply_mode scoped, and is for this mode alone"},
		{"has(self.required_permissions) || has(self.operation_rules)", "it says nothing of calls: write required_permissions or operation_rules; with required_permissions: [] every caller may call the tool"},
	},
	"ToolPermission.spec.operation_rules[]": {
		{"!has(self.approvers) || size(self.approvers) == 0 || (has(self.verdict) && self.verdict == 'approval_required')", "approvers is for verdict: approval_required"},
	},
}

// ofProfiles are the rules for auth that Tools and McpServers share.
var ofProfiles = []rule{
	{"PROFILE == 'api_key_header' ? has(self.headerName) : !has(self.headerName)", "headerName is required for profile api_key_header, and is for it alone"},
	{"PROFILE == 'oauth2_client_credentials' ? has(self.tokenURL) : !has(self.tokenURL)", "tokenURL is required for profile oauth2_client_credentials, and is for it alone"},
}

// constrain adds what is known of the value at a path to its schema.
func constrain(schema object, at string) {
	maps.Copy(schema, limits[at])
	var list []any
	for _, one := range validations[at] {
		list = append(list, object{"rule": defaults.Replace(one.rule), "message": one.message})
	}
	if list != nil {
		schema["x-kubernetes-validations"] = list
	}
}
