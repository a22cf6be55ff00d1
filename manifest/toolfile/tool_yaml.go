// Package toolfile reads what describes a tool next to the tool itself: the
// tool.yaml or orla-tool.json of a package, the metadata block of a script, and the
// NAME.tool.yaml of an executable. It reads one tool at a time, and starts no process.
package toolfile

import (
	"encoding/json"
	"regexp"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest/keys"
)

// toolYAML is tool.yaml, key by key (SPEC B1, B2). What a tag says of a key is
// what editors show for it.
type toolYAML struct {
	Name        string `json:"name" jsonschema:"Name of the tool, as clients call it: 1 to 64 of A-Z a-z 0-9 _ . and -"`
	Version     string `json:"version" jsonschema:"Version of the package: SemVer 2.0, such as 1.2.3"`
	Description string `json:"description" jsonschema:"What the tool does and when to use it. Models read this."`
	Entrypoint  string `json:"entrypoint" jsonschema:"File to run, relative to the package: an executable, or a script that names its interpreter in a shebang line"`
	about
	MCP     keys.MCPKeys `json:"mcp,omitzero" jsonschema:"How the tool looks to MCP clients"`
	Runtime keys.Runtime `json:"runtime,omitzero" jsonschema:"How the tool is run"`
}

// blockYAML is a metadata block or a NAME.tool.yaml (SPEC A6). What matters to
// a simple tool may be written without its section; see keys.Description.Unfold.
type blockYAML struct {
	Description string `json:"description,omitempty"`
	about
	MCP     keys.MCPKeys `json:"mcp,omitzero"`
	Runtime keys.Runtime `json:"runtime,omitzero"`
	keys.MCPKeys
	keys.Simple
}

// about is what people want to know of a package. Orla does nothing with it.
type about struct {
	Author       string       `json:"author,omitempty" jsonschema:"Who wrote the tool"`
	License      string       `json:"license,omitempty" jsonschema:"SPDX identifier of the licence"`
	Repository   string       `json:"repository,omitempty" jsonschema:"Where the source is kept"`
	Homepage     string       `json:"homepage,omitempty" jsonschema:"Where to read more"`
	Keywords     []string     `json:"keywords,omitempty" jsonschema:"Words to find the tool by"`
	Dependencies yamldoc.JSON `json:"dependencies,omitempty" jsonschema:"Programs that the tool needs, such as python>=3.8, node>=20 and ffmpeg. orla doctor and orla validate check them"`
	Permissions  yamldoc.JSON `json:"permissions,omitempty" jsonschema:"What an installed tool asks for: filesystem:read[:PATH], filesystem:write[:PATH], network[:HOST] and env:NAME. Without effect on a tool that was not installed"`
	Language     string       `json:"language,omitempty" jsonschema:"What the tool is written in. Informational only"`
}

// requirement is a program, with the versions that are good if any are not.
var requirement = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*[ ]*([<>=!~]=?[ ]*[0-9][0-9.*]*([ ]*,[ ]*[<>=!~]=?[ ]*[0-9][0-9.*]*)*)?$`)

// requires returns the programs of dependencies. What is not the name of one is informational only.
func (a about) requires() (list []string) {
	var names []string
	if json.Unmarshal(a.Dependencies, &names) != nil {
		return nil
	}
	for _, name := range names {
		if requirement.MatchString(name) {
			list = append(list, name)
		}
	}
	return list
}

// SchemaJSON returns the JSON Schema of tool.yaml, indented (SPEC B6).
func SchemaJSON() []byte { return schemaOf[toolYAML](ManifestFile, "A package of tools for Orla") }

func schemaOf[T any](title, description string) []byte {
	raw, err := yamldoc.Schema[T](yamldoc.SchemaOptions{Title: title, Description: description})
	if err != nil {
		panic(err) // the types above are all that it depends on
	}
	return raw
}
