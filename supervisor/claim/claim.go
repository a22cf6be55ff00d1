// Package claim remembers who offered something first: of several providers that offer the same, it serves it (SPEC N2).
package claim

import (
	"slices"

	"github.com/orla-project/orla/internal/call/rules"
)

// MaxLine bounds how many providers of one thing are remembered.
const MaxLine = 64

// Sort is what kind of thing a provider offers.
type Sort string

// The kinds of things.
const (
	Tool     Sort = "tool"
	Resource Sort = "resource"
	Template Sort = "resource template"
	Prompt   Sort = "prompt"
	Provider Sort = "provider" // a manifest that has tools of its own, whatever they are called
)

// Claim is a name or a URI, which one provider at a time serves.
type Claim struct {
	Sort Sort
	Key  string
}

// IsManifest reports whether a name is of one of the manifests that offer it.
func (k Claim) IsManifest(line []string) bool {
	return k.Sort == Tool && slices.ContainsFunc(line, func(name string) bool { return rules.Folded(name) == k.Key })
}
