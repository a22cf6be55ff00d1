package manifest

import (
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// readTool reads a Tool (SPEC-TOOLS 1.2).
func (d *declaration) readTool() {
	document := toolResource{Spec: toolDefaults()}
	_ = d.doc.Decode(&document) // it is the doc's, which more faults are added to
	spec := document.Spec
	d.name = d.identify(document.Metadata)
	if !d.hasSpec() {
		return
	}
	d.sections = map[string]string{"mcp": "spec", "runtime": "spec.runtime"}
	d.mcp = mcpKeys{InputSchema: spec.InputSchema, OutputSchema: spec.OutputSchema}

	resource := Resource{
		Namespace:        d.namespace,
		Capabilities:     d.capabilities(spec.Capabilities),
		OperationClasses: classes(spec),
		Risk:             spec.RiskLevel,
	}
	var isolation Isolation
	if d.isType(spec.Type) {
		isolation.Mode = d.isolationMode(spec)
		d.readType(spec, &resource)
	}
	resource.Auth = d.auth(spec.Auth)
	d.tool = Tool{
		Name:         d.name,
		Kind:         Kind(spec.Type),
		Source:       d.file.display,
		Description:  spec.Description,
		InputSchema:  d.inputSchema(),
		OutputSchema: d.outputSchema(),
		Annotations:  d.hints(spec, resource.OperationClasses),
		Run:          Run{Timeout: d.timeout(spec.Runtime)},
		Retry:        d.retry(spec.Runtime.Retry),
		Isolation:    isolation,
		Resource:     &resource,
	}
	if spec.Type == typeCLI && d.isType(spec.Type) {
		d.readCLI(spec.CLI)
	}
}

// isType reports whether the file's type is that one: if it is none at all,
// what has been decoded is the default, and would be said to lack this and that.
func (d *declaration) isType(t toolType) bool {
	text, given := d.doc.Text("spec.type")
	return !d.doc.Has("spec.type") || given && text == string(t)
}

// readType reads what belongs to the tool's type, and refuses what belongs to others.
func (d *declaration) readType(spec toolSpec, r *Resource) {
	foreign := func(key, of string) {
		if d.doc.Has("spec." + key) {
			d.doc.Faultf("spec."+key, "is for type %s, and this tool is of type %s", of, spec.Type)
		}
	}
	if spec.Type != typeCLI {
		foreign("cli", "cli")
	}
	if spec.Type != typeWASM {
		foreign("wasm", "wasm")
	}
	if spec.Type != toolType(MCP) {
		foreign("mcp_server_ref", "mcp")
		foreign("mcp_tool_name", "mcp")
	}
	switch spec.Type {
	case toolType(HTTP), toolType(External), toolType(Webhook), toolType(GRPC):
		r.Endpoint = d.endpoint(spec.Endpoint, spec.Type == toolType(GRPC))
		return
	case toolType(MCP):
		r.Server, r.ServerTool = d.serverTool(spec)
	case typeCLI: // see readCLI
	case typeWASM:
		r.WASM = d.readWASM(spec.WASM)
	}
	foreign("endpoint", "http, external, grpc or webhook-callback")
	switch {
	case !d.doc.Has("spec.auth"):
	case spec.Type == toolType(MCP):
		d.doc.Faultf("spec.auth", "does not go with type mcp: it is the McpServer that is authenticated to")
	case spec.Type == typeCLI:
		d.doc.Faultf("spec.auth", "does not go with type cli: set a variable to the secret by cli.env_from")
	}
}

// serverTool returns the McpServer of a tool of type mcp and its tool there.
func (d *declaration) serverTool(spec toolSpec) (server, tool string) {
	const serverKey, toolKey = "spec.mcp_server_ref", "spec.mcp_tool_name"
	if spec.MCPServerRef == "" {
		d.doc.Faultf(serverKey, "is required for type mcp")
	} else if !validName(spec.MCPServerRef) {
		d.doc.Faultf(serverKey, "must be the name of an McpServer, got %q", spec.MCPServerRef)
	}
	if spec.MCPToolName == "" {
		d.doc.Faultf(toolKey, "is required for type mcp")
	}
	d.server = d.doc.At(serverKey, "there is no McpServer %q; calls fail until there is", spec.MCPServerRef)
	return spec.MCPServerRef, spec.MCPToolName
}

// isolationMode returns where calls run, and refuses what is asked for and cannot
// be: nobody is to believe in a sandbox that is not there.
func (d *declaration) isolationMode(spec toolSpec) IsolationMode {
	const key = "spec.runtime.isolation_mode"
	risky := spec.RiskLevel == RiskHigh || spec.RiskLevel == RiskCritical
	mode := spec.Runtime.IsolationMode
	if mode == "" {
		switch {
		case spec.Type == typeCLI:
			return IsolationContainer
		case spec.Type == typeWASM:
			return IsolationWASM
		case risky && !d.doc.Has(key): // or it has a fault already
			d.warnings = append(d.warnings, d.doc.At("spec.risk_level", "%s would make runtime.isolation_mode sandboxed, and a tool of type %s runs nothing on this machine that could be isolated: "+
				"it is served with isolation_mode none; write that to confirm it", spec.RiskLevel, spec.Type))
		}
		return IsolationNone
	}
	switch {
	case spec.Type == typeWASM && mode != IsolationWASM:
		d.doc.Faultf(key, "%s does not go with type wasm, which runs as wasm alone", mode)
	case spec.Type == typeWASM, spec.Type == typeCLI && mode != IsolationWASM, mode == IsolationNone:
	case mode == IsolationWASM:
		d.doc.Faultf(key, "wasm is for type wasm, and this tool is of type %s", spec.Type)
	default:
		d.doc.Faultf(key, "%s does not go with type %s, which runs nothing of its own on this machine that could be isolated; only none does", mode, spec.Type)
	}
	return mode
}

// timeout is the longest time of an attempt.
func (d *declaration) timeout(k toolRuntimeKeys) time.Duration {
	if k.Timeout == 0 {
		d.fault("runtime", "timeout", "must be above 0")
	}
	return time.Duration(k.Timeout)
}

// capabilities are trimmed, and each is there once without regard to case.
func (d *declaration) capabilities(given []string) []string {
	var list []string
	has := make(map[string]bool, len(given))
	for i, c := range given {
		c = strings.TrimSpace(c)
		if c == "" {
			d.doc.Faultf("spec.capabilities"+indexed(i), "must not be empty")
		}
		if folded := strings.ToLower(strings.ToUpper(c)); !has[folded] { // both, as strings.EqualFold has it
			has[folded] = true
			list = append(list, c)
		}
	}
	return list
}

// classes are what a call does, each once.
func classes(spec toolSpec) []OperationClass {
	var list []OperationClass
	for _, class := range spec.OperationClasses {
		if !slices.Contains(list, class) {
			list = append(list, class)
		}
	}
	switch {
	case len(list) > 0:
		return list
	case spec.RiskLevel == RiskHigh, spec.RiskLevel == RiskCritical:
		return []OperationClass{ClassWrite}
	}
	return []OperationClass{ClassRead}
}

// hints tell clients what a call does, as far as the file says so: a client may
// let a call pass unasked that is said to read only, and so no default may say
// it (SPEC-TOOLS 8.5). nil for nothing; a tool of an McpServer then has the server's own.
func (d *declaration) hints(spec toolSpec, classes []OperationClass) *mcp.ToolAnnotations {
	if len(spec.OperationClasses) == 0 {
		return nil
	}
	open := spec.Type != typeWASM // a module reaches nothing
	hints := &mcp.ToolAnnotations{OpenWorldHint: &open}
	switch {
	case slices.Contains(classes, ClassDelete), slices.Contains(classes, ClassAdmin):
		destructive := true
		hints.DestructiveHint = &destructive
	case !slices.Contains(classes, ClassWrite):
		hints.ReadOnlyHint = true
	}
	return hints
}
