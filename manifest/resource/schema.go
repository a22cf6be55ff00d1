package resource

import (
	"reflect"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

// SchemaJSON returns the JSON Schema of one document of a file of
// resources, indented (SPEC-TOOLS 1.1).
func SchemaJSON() []byte {
	raw, err := yamldoc.SchemaOneOf(
		yamldoc.SchemaOptions{Title: "resource", Description: "A tool, a server of tools, a secret, or a rule for calls"},
		reflect.TypeFor[toolResource](), reflect.TypeFor[serverResource](), reflect.TypeFor[secretResource](),
		reflect.TypeFor[roleResource](), reflect.TypeFor[policyResource](), reflect.TypeFor[permissionResource](),
	)
	if err != nil {
		panic(err) // the types are all that it depends on
	}
	return raw
}
