package discovery

import (
	"fmt"
	"os"

	"github.com/orla-project/orla/internal/deps"
	"github.com/orla-project/orla/internal/launch/environ"
	"github.com/orla-project/orla/manifest"
)

// warnOfUnlocked warns of each tool whose package.json names packages that Orla does not install, as no lock says which
// versions (SPEC R2). It reads only files that have changed since files read them.
func warnOfUnlocked(found *manifest.Result, files *deps.Files) {
	clean := environ.Clean(os.Environ())
	for i := range found.Tools {
		t := &found.Tools[i]
		if t.Interpreter.Name != "node" {
			continue
		}
		source, ok := environ.Dependencies(*t, clean)
		if !ok {
			continue
		}
		need, err := files.Detect(source)
		if err != nil || need.Unlocked == "" {
			continue // its start says what cannot be read
		}
		found.Problems = append(found.Problems, manifest.Problem{Path: t.Source, Tool: t.Name, Severity: manifest.Warning, Err: fmt.Errorf(
			"%s needs packages, and there is no lock of npm or pnpm next to it: run npm install there, or Orla installs nothing", need.Unlocked)})
	}
}
