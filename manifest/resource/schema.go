package resource

import (
	"reflect"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

// SchemaJSON returns the JSON Schema of one document of a file of
// resources, indented (SPEC-TOOLS 1.1).
func SchemaJSON() []byte {
	raw, err := yamldoc.SchemaOneOf(
		yamldoc.SchemaOptions{Title: "resource", Description: "A tool, a server of tools or a secret for Orla"},
		reflect.TypeFor[toolResource](), reflect.TypeFor[serverResource](), reflect.TypeFor[secretResource](),
	)
	if err != nil {
		panic(err) // the types are all that it depends on
	}
	return raw
}
