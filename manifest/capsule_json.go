package manifest

import "github.com/orla-project/orla/internal/yamldoc"

// capsuleJSON is orla-tool.json, key by key (RFC 2 §6, SPEC B4): tool.yaml
// with the keys of runtime at the top level, and always a capsule.
type capsuleJSON struct {
	Name        string `json:"name" jsonschema:"Name of the capsule, as it says hello: 1 to 64 of A-Z a-z 0-9 _ . and -"`
	Version     string `json:"version" jsonschema:"Version of the capsule: SemVer 2.0, such as 1.2.3"`
	Entrypoint  string `json:"entrypoint" jsonschema:"File to run, relative to the capsule: an executable, or a script that names its interpreter in a shebang line"`
	Description string `json:"description,omitempty" jsonschema:"What the tool does and when to use it. Models read this."`
	about
	MCP mcpKeys `json:"mcp,omitzero" jsonschema:"How the tool looks to MCP clients"`
	simpleKeys
	capsuleKeys
}

// notInCapsuleJSON says why keys of tool.yaml do not belong in orla-tool.json.
var notInCapsuleJSON = map[string]string{
	"mode":    "does not belong here: orla-tool.json always describes a capsule",
	"runtime": "does not belong here: in orla-tool.json its keys stand at the top level; tool.yaml has the section",
}

const (
	deprecated = "is deprecated: tool.yaml replaces it (RFC 3); to convert it, move name, version, entrypoint and a description to a tool.yaml, " +
		"and everything else below runtime, with mode: capsule"
	hidden = "is not read, since the tool.yaml beside it replaces it (RFC 3); remove it"
)

// parseCapsuleJSON is parseManifest for an orla-tool.json.
func parseCapsuleJSON(display string, data []byte) (t Tool, d description, entrypoint string) {
	defaults := runtimeDefaults()
	written := capsuleJSON{simpleKeys: defaults.simpleKeys, capsuleKeys: defaults.capsuleKeys}
	// The error is the doc's, which more faults are added to.
	doc, _ := yamldoc.Decode(display, data, &written, yamldoc.Options{Refuse: notInCapsuleJSON})
	d = description{
		doc: doc, flat: true, mcp: written.MCP,
		runtime: runtimeKeys{Mode: Capsule, simpleKeys: written.simpleKeys, capsuleKeys: written.capsuleKeys},
	}
	t = Tool{Source: display}
	entrypoint = d.identify(&t, written.Name, written.Version, written.Description, written.Entrypoint)
	d.fill(&t)
	return t, d, entrypoint
}

// CapsuleSchemaJSON returns the JSON Schema of orla-tool.json, indented.
func CapsuleSchemaJSON() []byte {
	return schemaOf[capsuleJSON](capsuleFile, "A capsule for Orla. Deprecated: tool.yaml replaces it")
}
