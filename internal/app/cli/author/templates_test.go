package author

import (
	"path/filepath"
	"testing"

	"github.com/orla-project/orla/internal/testing/testkit"
)

// What speaks with Orla in the templates is what the examples have, and stands there.
func TestTemplatesShareTheirWire(t *testing.T) {
	for example, template := range map[string]string{
		"notes/wire.py": "python/wire.py", "tickets/wire.mjs": "node/wire.mjs",
	} {
		want := testkit.ReadFile(t, filepath.Join("..", "..", "..", "..", "examples", "capsules", example))
		if testkit.ReadFile(t, filepath.Join("templates", "capsule", template)) != want {
			t.Errorf("templates/capsule/%s is not examples/capsules/%s", template, example)
		}
	}
	if testkit.ReadFile(t, "templates/simple/go/run.sh") != testkit.ReadFile(t, "templates/capsule/go/run.sh") {
		t.Error("the two run.sh for Go differ")
	}
}

// What a new capsule speaks by is what the examples speak by: a fault that is
// mended in one is mended in both.
func TestTemplatesSpeakAsTheExamplesDo(t *testing.T) {
	for template, example := range map[string]string{"python/wire.py": "notes/wire.py", "node/wire.mjs": "tickets/wire.mjs"} {
		if testkit.ReadFile(t, filepath.Join("templates", "capsule", template)) != testkit.ReadFile(t, filepath.Join("..", "..", "..", "..", "examples", "capsules", example)) {
			t.Errorf("templates/capsule/%s is not examples/capsules/%s", template, example)
		}
	}
}

// The files of a new tool have the names that Orla, Go, pip and npm look for.
func TestNewFilesHaveTheNamesThatProgramsLookFor(t *testing.T) {
	for template, want := range map[string]string{
		"requirements.txt": "requirements.txt", "go.mod.txt": "go.mod", "main.go.txt": "main.go",
		"NAME.py": "greet.py", "package.json": "package.json",
	} {
		if got := madeName(template, "greet"); got != want {
			t.Errorf("the template %s becomes %s, and not %s", template, got, want)
		}
	}
}
