// Package owner knows which manifest a name belongs to (SPEC-TOOLS 8.4).
package owner

import (
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/manifest"
)

// Names are those of manifests, and the beginnings of the names of their tools. A name belongs to one manifest at most: roles give
// by it what that one has, and nothing where it is nobody's, or that of several. Names that differ in case or in their form in
// Unicode are the same. To add names is not safe for use by several goroutines at once; to look at them is.
type Names struct {
	// manifests are folded names, each with the manifest that is there; "" for one that is away, has a fault, or is there twice.
	manifests map[string]string
	// prefixes are those of the names of providers' tools, NAME__ and NAME--, each with the provider; "" for several, and nobody.
	prefixes map[string]string
	longest  int // of prefixes, in bytes
}

// New returns Names without any, with room for so many manifests and providers.
func New(manifests, providers int) Names {
	const forms = 2 // of a provider's name, as a rule
	return Names{manifests: make(map[string]string, manifests), prefixes: make(map[string]string, forms*providers)}
}

// Serve adds the name of a manifest that is there.
func (n *Names) Serve(name string) {
	folded := rules.Folded(name)
	if other, there := n.manifests[folded]; there && other != "" && other != name {
		n.manifests[folded] = ""
	} else if !there || other == name {
		n.manifests[folded] = name
	}
}

// Add adds the name of a manifest, which may be away. hasTools says that it has tools whose names begin with its own.
func (n *Names) Add(name string, hasTools bool) {
	folded := rules.Folded(name)
	if _, there := n.manifests[folded]; !there {
		n.manifests[folded] = ""
	}
	if !hasTools {
		return
	}
	for _, prefix := range prefixesOf(name) {
		if other, there := n.prefixes[prefix]; there && other != name {
			n.begin(prefix, "")
		} else {
			n.begin(prefix, name)
		}
	}
}

// Faulty adds the name of a manifest that has a fault, after all others. One that is served keeps the name only if it is spelt in
// the same way.
func (n *Names) Faulty(name string) {
	if folded := rules.Folded(name); n.manifests[folded] != name {
		n.manifests[folded] = ""
	}
	for _, prefix := range prefixesOf(name) {
		if n.prefixes[prefix] != name {
			n.begin(prefix, nobody)
		}
	}
}

func (n *Names) begin(prefix, provider string) {
	n.prefixes[prefix] = provider
	n.longest = max(n.longest, len(prefix))
}

// nobody is whose the tools are of a manifest that has a fault. It is not a name that a manifest can have.
const nobody = "\x00"

// prefixesOf are the beginnings of names of a provider's tools.
func prefixesOf(provider string) []string {
	folded := rules.Folded(provider)
	return []string{folded + "__", folded + "--", rules.Folded(manifest.Dashed(provider)) + "--"}
}

// Manifest returns the manifest that is there of a folded name, and whether it is the name of a manifest at all; "" if the
// manifest is away, has a fault, or is there twice.
func (n *Names) Manifest(folded string) (name string, is bool) {
	name, is = n.manifests[folded]
	return name, is
}

// Provider returns the provider whose tools' names begin as a folded name does, and whether it begins so at all; of several, the one
// with the longest name, and "" if several have that.
func (n *Names) Provider(folded string) (name string, is bool) {
	for end := min(len(folded), n.longest); end > 2; end-- {
		if between := folded[end-2 : end]; between == "__" || between == "--" {
			if name, is = n.prefixes[folded[:end]]; is {
				return name, true
			}
		}
	}
	return "", false
}
