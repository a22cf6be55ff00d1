package discovery

import (
	"fmt"

	"github.com/orla-project/orla/capsule/records"
	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/manifest"
)

// WarnOfRenames warns of each capsule that offered a single tool when it last ran, and whose
// manifest does not choose a prefix: a second tool would rename the first for every client.
func WarnOfRenames(found *manifest.Result, cfg *config.Loaded) {
	lists := records.NewLists(config.StateDir(cfg, "lists"))
	for _, t := range found.Tools {
		if t.Kind != manifest.Capsule || t.Runtime.Declared || t.Runtime.Generated || t.Runtime.ToolPrefix != nil {
			continue
		}
		if only := lists.OnlyTool(t); only != "" {
			found.Problems = append(found.Problems, manifest.Problem{Path: t.Source, Tool: t.Name, Severity: manifest.Warning, Err: fmt.Errorf(
				`clients know its only tool as %[1]s; with a second tool it would be called %[2]s__%[1]s. Set runtime.tool_prefix to choose names that stay: "" for %[1]s, %[2]s__ for %[2]s__%[1]s`, only, t.Name)})
		}
	}
}
