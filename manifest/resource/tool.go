package resource

import (
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// readTool reads a Tool (SPEC-TOOLS 1.2).
func (d *Declaration) readTool() {
	document := toolResource{Spec: toolDefaults()}
	_ = d.Doc.Decode(&document) // the Doc keeps the faults, and more are added to them
	spec := document.Spec
	d.Name = d.identify(document.Metadata)
	if !d.hasSpec() {
		return
	}
	d.Sections = map[string]string{"mcp": "spec", "runtime": "spec.runtime"}
	d.MCP = keys.MCPKeys{InputSchema: spec.InputSchema, OutputSchema: spec.OutputSchema}

	resource := manifest.Resource{
		Namespace:        d.namespace,
		Capabilities:     d.capabilities(spec.Capabilities),
		OperationClasses: classes(spec),
		Risk:             spec.RiskLevel,
	}
	var isolation manifest.Isolation
	if d.isType(spec.Type) {
		isolation.Mode = d.isolationMode(spec)
		d.readType(spec, &resource)
	}
	resource.Auth = d.auth(spec.Auth)
	d.Tool = manifest.Tool{
		Name:         d.Name,
		Kind:         manifest.Kind(spec.Type),
		Source:       d.File.Display,
		Description:  spec.Description,
		InputSchema:  d.InputSchema(),
		OutputSchema: d.OutputSchema(),
		Annotations:  hints(spec, resource.OperationClasses),
		Run:          manifest.Run{Timeout: d.timeout(spec.Runtime)},
		Retry:        d.Retry(spec.Runtime.Retry),
		Isolation:    isolation,
		Resource:     &resource,
	}
	if spec.Type == typeCLI && d.isType(spec.Type) {
		d.readCLI(spec.CLI)
	}
}

// isType reports whether the file's type is t. If the type in the file is not valid, the decoded one is the
// default, whose checks would report misleading faults.
func (d *Declaration) isType(t toolType) bool {
	text, given := d.Doc.Text("spec.type")
	return !d.Doc.Has("spec.type") || given && text == string(t)
}

// readType reads what belongs to the tool's type, and refuses what belongs to others.
func (d *Declaration) readType(spec toolSpec, r *manifest.Resource) {
	foreign := func(key, of string) {
		if d.Doc.Has("spec." + key) {
			d.Doc.Faultf("spec."+key, "is for type %s, and this tool is of type %s", of, spec.Type)
		}
	}
	if spec.Type != typeCLI {
		foreign("cli", "cli")
	}
	if spec.Type != typeWASM {
		foreign("wasm", "wasm")
	}
	if spec.Type != toolType(manifest.MCP) {
		foreign("mcp_server_ref", "mcp")
		foreign("mcp_tool_name", "mcp")
	}
	switch spec.Type {
	case toolType(manifest.HTTP), toolType(manifest.External), toolType(manifest.Webhook), toolType(manifest.GRPC):
		r.Endpoint = d.endpoint(spec.Endpoint, spec.Type == toolType(manifest.GRPC))
		return
	case toolType(manifest.MCP):
		r.Server, r.ServerTool = d.serverTool(spec)
	case typeCLI: // see readCLI
	case typeWASM:
		r.WASM = d.readWASM(spec.WASM)
	}
	foreign("endpoint", "http, external, grpc or webhook-callback")
	switch {
	case !d.Doc.Has("spec.auth"):
	case spec.Type == toolType(manifest.MCP):
		d.Doc.Faultf("spec.auth", "does not go with type mcp: it is the McpServer that is authenticated to")
	case spec.Type == typeCLI:
		d.Doc.Faultf("spec.auth", "does not go with type cli: set a variable to the secret by cli.env_from")
	}
}

// serverTool returns the McpServer of a tool of type mcp and its tool there.
func (d *Declaration) serverTool(spec toolSpec) (server, tool string) {
	const serverKey, toolKey = "spec.mcp_server_ref", "spec.mcp_tool_name"
	if spec.MCPServerRef == "" {
		d.Doc.Faultf(serverKey, "is required for type mcp")
	} else if !manifest.ValidName(spec.MCPServerRef) {
		d.Doc.Faultf(serverKey, "must be the name of an McpServer, got %q", spec.MCPServerRef)
	}
	if spec.MCPToolName == "" {
		d.Doc.Faultf(toolKey, "is required for type mcp")
	}
	d.NoServer = d.Doc.At(serverKey, "there is no McpServer %q; calls fail until there is", spec.MCPServerRef)
	return spec.MCPServerRef, spec.MCPToolName
}

// isolationMode returns where calls run. It refuses a mode that the type does not have: an author must not believe
// in a sandbox that does not exist.
func (d *Declaration) isolationMode(spec toolSpec) manifest.IsolationMode {
	const key = "spec.runtime.isolation_mode"
	risky := spec.RiskLevel == manifest.RiskHigh || spec.RiskLevel == manifest.RiskCritical
	mode := spec.Runtime.IsolationMode
	if mode == "" {
		switch {
		case spec.Type == typeCLI:
			return manifest.IsolationContainer
		case spec.Type == typeWASM:
			return manifest.IsolationWASM
		case risky && !d.Doc.Has(key): // or it has a fault already
			d.Warnings = append(d.Warnings, d.Doc.At("spec.risk_level", "%s would make runtime.isolation_mode sandboxed, and a tool of type %s runs nothing on this machine that could be isolated: "+
				"it is served with isolation_mode none; write that to confirm it", spec.RiskLevel, spec.Type))
		}
		return manifest.IsolationNone
	}
	switch {
	case spec.Type == typeWASM && mode != manifest.IsolationWASM:
		d.Doc.Faultf(key, "%s does not go with type wasm, which runs as wasm alone", mode)
	case spec.Type == typeWASM, spec.Type == typeCLI && mode != manifest.IsolationWASM, mode == manifest.IsolationNone:
	case mode == manifest.IsolationWASM:
		d.Doc.Faultf(key, "wasm is for type wasm, and this tool is of type %s", spec.Type)
	default:
		d.Doc.Faultf(key, "%s does not go with type %s, which runs nothing of its own on this machine that could be isolated; only none does", mode, spec.Type)
	}
	return mode
}

// timeout is the longest time of an attempt.
func (d *Declaration) timeout(k toolRuntimeKeys) time.Duration {
	if k.Timeout == 0 {
		d.Fault("runtime", "timeout", "must be above 0")
	}
	return time.Duration(k.Timeout)
}

// capabilities are trimmed, and each is there once without regard to case.
func (d *Declaration) capabilities(given []string) []string {
	var list []string
	has := make(map[string]bool, len(given))
	for i, c := range given {
		c = strings.TrimSpace(c)
		if c == "" {
			d.Doc.Faultf("spec.capabilities"+keys.Indexed(i), "must not be empty")
		}
		if folded := strings.ToLower(strings.ToUpper(c)); !has[folded] { // both, as strings.EqualFold has it
			has[folded] = true
			list = append(list, c)
		}
	}
	return list
}

// classes are what a call does, each once.
func classes(spec toolSpec) []manifest.OperationClass {
	var list []manifest.OperationClass
	for _, class := range spec.OperationClasses {
		if !slices.Contains(list, class) {
			list = append(list, class)
		}
	}
	switch {
	case len(list) > 0:
		return list
	case spec.RiskLevel == manifest.RiskHigh, spec.RiskLevel == manifest.RiskCritical:
		return []manifest.OperationClass{manifest.ClassWrite}
	}
	return []manifest.OperationClass{manifest.ClassRead}
}

// hints returns what clients are told about calls, as far as the file says it. A client may run a call without
// asking if it is said to only read; so no default says that (SPEC-TOOLS 8.5). It is nil if the file says nothing;
// a tool of an McpServer then has the server's own.
func hints(spec toolSpec, classes []manifest.OperationClass) *mcp.ToolAnnotations {
	if len(spec.OperationClasses) == 0 {
		return nil
	}
	hints := &mcp.ToolAnnotations{OpenWorldHint: new(spec.Type != typeWASM)} // a module reaches nothing
	switch {
	case slices.Contains(classes, manifest.ClassDelete), slices.Contains(classes, manifest.ClassAdmin):
		hints.DestructiveHint = new(true)
	case !slices.Contains(classes, manifest.ClassWrite):
		hints.ReadOnlyHint = true
	}
	return hints
}
