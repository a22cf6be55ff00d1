package discover

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// location is where something was found.
type location struct {
	entry string // as messages have it
	id    string // the same for one thing that is found in two ways
	// named is where a file of resources names it, without a message; zero for
	// what no such file declares.
	named yamldoc.Fault
}

// String gives the entry, and the line if there is one.
func (l location) String() string {
	if l.named.Line == 0 {
		return l.entry
	}
	return fmt.Sprintf("%s:%d", l.entry, l.named.Line)
}

// fault says what is wrong with what is found there.
func (l location) fault(format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if l.named.Line == 0 {
		return errors.New(msg)
	}
	f := l.named
	f.Msg = msg
	return yamldoc.Faults{f}
}

// found is a tool and where it was found.
type found struct {
	location
	tool   *manifest.Tool
	server yamldoc.Fault // that there is no such server, if there is none; zero for all but type mcp
	packed bool          // in a folder of versions, as installed packages are
}

// foundSecret is a secret and where it was found.
type foundSecret struct {
	location
	secret secret.Secret
}

// catalog gives each name to one tool, and to one secret.
type catalog struct {
	names    map[string]*found // of the folder that is searched
	tools    []found
	secrets  map[secret.Ref]foundSecret // by namespace and name
	rules    ruleBook
	problems []manifest.Problem
}

func newCatalog() *catalog {
	return &catalog{names: map[string]*found{}, secrets: map[secret.Ref]foundSecret{}, rules: ruleBook{found: map[string]location{}}}
}

// rank is 1 for what may be an installed package: it has no name that the user has given to something else (SPEC M7).
func (f *found) rank() int {
	if f.packed {
		return 1
	}
	return 0
}

// add takes what w has found since the last time, in path order, with packages last. The first of
// a name serves; another is a conflict, unless hidden already has the name, as
// the project's tools hide the user's (SPEC A4). One file that is found in two
// ways is not a conflict with itself.
func (c *catalog) add(w *walker, hidden map[string]*found) {
	if len(c.tools) == 0 { // what is not served leaves its room to the next
		c.names, c.tools = make(map[string]*found, len(w.found)), w.found[:0]
	}
	slices.SortStableFunc(w.found, func(a, b found) int { return cmp.Compare(a.rank(), b.rank()) })
	for _, f := range w.found {
		first, taken := named(hidden, f.tool)
		if taken && first.tool.Name == f.tool.Name {
			continue
		}
		if !taken {
			first, taken = named(c.names, f.tool)
		}
		switch {
		case !taken:
			c.tools = append(c.tools, f)
			for _, name := range manifest.RuleNames(f.tool) {
				c.names[name] = &c.tools[len(c.tools)-1]
			}
		case first.tool.Name != f.tool.Name:
			c.conflict(f.location, f.tool.Name, "rules cannot tell the name %q from %q, which is served from %s", f.tool.Name, first.tool.Name, first.location)
		case first.id != f.id || first.tool.Kind != f.tool.Kind:
			c.conflict(f.location, f.tool.Name, "the tool %q is served from %s", f.tool.Name, first.location)
		}
	}
	w.found = nil
	c.addRules(w)
	c.addSecrets(w, hidden != nil)
}

// named finds the manifest that rules know by one of the names of another.
func named(names map[string]*found, t *manifest.Tool) (first *found, is bool) {
	for _, name := range manifest.RuleNames(t) {
		if first, is = names[name]; is {
			return first, true
		}
	}
	return nil, false
}

// addSecrets does the same for secrets. again is whether another folder, which
// hides this one's, was searched before.
func (c *catalog) addSecrets(w *walker, again bool) {
	before := map[secret.Ref]bool{}
	for name := range c.secrets {
		before[name] = again
	}
	for _, f := range w.secrets {
		name := secret.Ref{Namespace: f.secret.Namespace, Name: f.secret.Name}
		first, taken := c.secrets[name]
		switch {
		case !taken:
			c.secrets[name] = f
		case !before[name] && first.id != f.id:
			c.conflict(f.location, "", "the secret %q of namespace %s is that of %s", name.Name, name.Namespace, first.location)
		}
	}
	w.secrets = nil
}

func (c *catalog) conflict(at location, tool, format string, args ...any) {
	c.problems = append(c.problems, manifest.Problem{
		Path: at.entry, Tool: tool, Severity: manifest.Fault,
		Err: at.fault("conflict: "+format+"; rename one of the two", args...),
	})
}

// checkServers warns of tools of servers that there are none of.
func (c *catalog) checkServers() {
	servers := map[string]bool{}
	for _, f := range c.tools {
		if f.tool.Kind == manifest.Capsule {
			servers[f.tool.Name] = true
		}
	}
	for _, f := range c.tools {
		if f.server.File != "" && !servers[f.tool.Resource.Server] {
			c.problems = append(c.problems, manifest.Problem{Path: f.entry, Tool: f.tool.Name, Severity: manifest.Warning, Err: yamldoc.Faults{f.server}})
		}
	}
}

func (c *catalog) result() manifest.Result {
	var r manifest.Result
	slices.SortFunc(c.tools, func(a, b found) int { return strings.Compare(a.tool.Name, b.tool.Name) })
	r.Tools = slices.Grow(r.Tools, len(c.tools)) // they are large
	for _, f := range c.tools {
		r.Tools = append(r.Tools, *f.tool)
	}
	for _, f := range c.secrets {
		r.Secrets = append(r.Secrets, f.secret)
	}
	slices.SortFunc(r.Secrets, func(a, b secret.Secret) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(c.problems, func(a, b manifest.Problem) int { return strings.Compare(a.Path, b.Path) })
	r.Rules, r.Problems = c.rules.sorted(), c.problems
	return r
}
