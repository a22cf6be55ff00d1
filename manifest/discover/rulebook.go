package discover

import (
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// foundRules is a governance document and where it was found.
type foundRules struct {
	location
	rules manifest.Rules
}

// ruleBook is what the governance documents of all folders say together.
type ruleBook struct {
	all   manifest.Rules
	found map[string]location // by kind and name, in lower case
}

// addRules takes the governance documents that w has found. Two of a kind with one name contradict each
// other: nobody knows which is meant, so that every call is denied.
func (c *catalog) addRules(w *walker) {
	for _, f := range w.rules {
		kind, name := kindOf(f.rules)
		key := strings.ToLower(kind + " " + name)
		if first, taken := c.rules.found[key]; taken {
			if first.id != f.id {
				c.problems = append(c.problems, manifest.Problem{
					Path: f.entry, Severity: manifest.Fault, Denies: true,
					Err: f.fault("conflict: the %s %q is also in %s, so every call is denied; rename or remove one of them", kind, name, first),
				})
			}
			continue
		}
		c.rules.found[key] = f.location
		c.rules.all.Roles = append(c.rules.all.Roles, f.rules.Roles...)
		c.rules.all.Policies = append(c.rules.all.Policies, f.rules.Policies...)
		c.rules.all.Permissions = append(c.rules.all.Permissions, f.rules.Permissions...)
	}
	w.rules = nil
}

// kindOf returns the kind and the name of what is in one document.
func kindOf(r manifest.Rules) (kind, name string) {
	switch {
	case len(r.Roles) > 0:
		return "AgentRole", r.Roles[0].Name
	case len(r.Policies) > 0:
		return "AgentPolicy", r.Policies[0].Name
	default:
		return "ToolPermission", r.Permissions[0].Name
	}
}

// sorted returns the rules by name, so that the same documents are the same rules.
func (b *ruleBook) sorted() manifest.Rules {
	slices.SortFunc(b.all.Roles, func(x, y manifest.Role) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(b.all.Policies, func(x, y manifest.Policy) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(b.all.Permissions, func(x, y manifest.Permission) int { return strings.Compare(x.Name, y.Name) })
	return b.all
}
