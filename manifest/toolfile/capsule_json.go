package toolfile

import (
	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// capsuleJSON is orla-tool.json, key by key (RFC 2 §6, SPEC B4): tool.yaml
// with the keys of runtime at the top level, and always a capsule.
type capsuleJSON struct {
	Name        string `json:"name" jsonschema:"Name of the capsule, as it says hello: 1 to 64 of A-Z a-z 0-9 _ . and -"`
	Version     string `json:"version" jsonschema:"Version of the capsule: SemVer 2.0, such as 1.2.3"`
	Entrypoint  string `json:"entrypoint" jsonschema:"File to run, relative to the capsule: an executable, or a script that names its interpreter in a shebang line"`
	Description string `json:"description,omitempty" jsonschema:"What the tool does and when to use it. Models read this."`
	about
	MCP keys.MCPKeys `json:"mcp,omitzero" jsonschema:"How the tool looks to MCP clients"`
	keys.Simple
	keys.Capsule
}

// notInCapsuleJSON says why keys of tool.yaml do not belong in orla-tool.json.
var notInCapsuleJSON = map[string]string{
	"mode":    "does not belong here: orla-tool.json always describes a capsule",
	"runtime": "does not belong here: in orla-tool.json its keys stand at the top level; tool.yaml has the section",
}

// parseCapsuleJSON is parseToolYAML for an orla-tool.json.
func parseCapsuleJSON(display string, data []byte) (t manifest.Tool, d keys.Description, entrypoint string) {
	defaults := keys.RuntimeDefaults()
	written := capsuleJSON{Simple: defaults.Simple, Capsule: defaults.Capsule}
	// The error is the doc's, which more faults are added to.
	doc, _ := yamldoc.Decode(display, data, &written, yamldoc.Options{Refuse: notInCapsuleJSON})
	d = keys.Description{
		Doc: doc, Flat: true, MCP: written.MCP,
		Runtime: keys.Runtime{Mode: manifest.Capsule, Simple: written.Simple, Capsule: written.Capsule},
	}
	t = manifest.Tool{Source: display}
	entrypoint = identify(&d, &t, written.Name, written.Version, written.Description, written.Entrypoint)
	d.Fill(&t)
	return t, d, entrypoint
}

// CapsuleSchemaJSON returns the JSON Schema of orla-tool.json, indented.
func CapsuleSchemaJSON() []byte {
	return schemaOf[capsuleJSON](CapsuleFile, "A capsule for Orla. Deprecated: tool.yaml replaces it")
}
