package manifest_test

import (
	"slices"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/orla-project/orla/manifest"
)

// SPEC-TOOLS 3.5: destructiveHint is the class delete, not readOnlyHint is write.
func TestClassesOfHints(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		name  string
		hints *mcp.ToolAnnotations
		want  []manifest.OperationClass
	}{
		{"no hints", nil, []manifest.OperationClass{manifest.ClassWrite}},
		{"nothing said", &mcp.ToolAnnotations{}, []manifest.OperationClass{manifest.ClassWrite}},
		{"read only", &mcp.ToolAnnotations{ReadOnlyHint: true}, []manifest.OperationClass{manifest.ClassRead}},
		{"not destructive", &mcp.ToolAnnotations{DestructiveHint: &no}, []manifest.OperationClass{manifest.ClassWrite}},
		{"destructive", &mcp.ToolAnnotations{DestructiveHint: &yes}, []manifest.OperationClass{manifest.ClassWrite, manifest.ClassDelete}},
		{"both, which is no sense", &mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: &yes}, []manifest.OperationClass{manifest.ClassDelete}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := manifest.ClassesOf(test.hints); !slices.Equal(got, test.want) {
				t.Errorf("the classes are %v, want %v", got, test.want)
			}
		})
	}
}
