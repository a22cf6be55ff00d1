package discovery

import (
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// Candidates returns the manifests that may serve a name: the one with that name, with the McpServer
// that it is a tool of; else the capsule whose prefix the name has; else all capsules, which say what
// they offer only when they run.
func Candidates(tools []manifest.Tool, name string) []manifest.Tool {
	if i := slices.IndexFunc(tools, func(t manifest.Tool) bool { return t.Name == name }); i >= 0 {
		list := []manifest.Tool{tools[i]}
		if tools[i].Kind == manifest.MCP {
			server := tools[i].Resource.Server
			list = append(list, slices.DeleteFunc(slices.Clone(tools), func(t manifest.Tool) bool { return t.Name != server })...)
		}
		return list
	}
	var capsules []manifest.Tool
	for _, t := range tools {
		switch {
		case t.Kind != manifest.Capsule || t.Runtime.Declared:
		case BelongsTo(name, t.Name):
			return []manifest.Tool{t}
		default:
			capsules = append(capsules, t)
		}
	}
	return capsules
}

// BelongsTo reports whether a name is that of a capsule, or begins as the names of
// its tools do: as CAPSULE__ or, of an McpServer, as SERVER--.
func BelongsTo(name, capsule string) bool {
	dashed := strings.NewReplacer("_", "-", ".", "-").Replace(capsule)
	return name == capsule || strings.HasPrefix(name, capsule+"__") || strings.HasPrefix(name, dashed+"--")
}
