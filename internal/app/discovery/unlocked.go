package discovery

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/manifest"
)

// warnOfUnlocked warns of each tool whose package.json names packages that Orla does not install, as no lock says which
// versions (SPEC R2).
func warnOfUnlocked(found *manifest.Result) {
	clean := environ.Clean(os.Environ())
	var files deps.Files
	for _, t := range found.Tools {
		if t.Interpreter.Name != "node" {
			continue
		}
		source, ok := environ.Dependencies(t, clean)
		if !ok {
			continue
		}
		need, err := files.Detect(source)
		if err != nil || need.Unlocked == "" || !namesPackages(need.Unlocked) {
			continue // its start says what cannot be read
		}
		found.Problems = append(found.Problems, manifest.Problem{Path: t.Source, Tool: t.Name, Severity: manifest.Warning, Err: fmt.Errorf(
			"%s needs packages, and there is no lock of npm or pnpm beside it: run npm install there, or Orla installs nothing", need.Unlocked)})
	}
}

// namesPackages reports whether a package.json has dependencies.
func namesPackages(file string) bool {
	const most = 1 << 20
	text, err := regularfile.Read(file, most)
	if err != nil {
		return false
	}
	var project struct {
		Dependencies map[string]any `json:"dependencies"`
	}
	return json.Unmarshal(text, &project) == nil && len(project.Dependencies) > 0
}
