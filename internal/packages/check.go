package packages

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/regularfile"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/origin"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/discover"
	"github.com/orla-project/orla/manifest/toolfile"
)

// Content is what a package says of itself.
type Content struct {
	Tool     manifest.Tool
	About    toolfile.About
	Asked    []permission.Permission // with links in paths resolved
	Warnings []error
}

// mostPrograms bounds those that a package requires: each is started, to ask for its version.
const mostPrograms = 32

// check reads a package in a stage as discovery would, and refuses what no package may bring (RFC 3 §5.4).
func (s *Session) check(stage, display string) (Content, error) {
	var c Content
	dir, err := filepath.EvalSymlinks(stage)
	if err != nil {
		return c, err
	}
	if _, err := os.Lstat(filepath.Join(dir, toolfile.ManifestFile)); err != nil {
		return c, fmt.Errorf("%s has no %s at its top, so it is not a package", display, toolfile.ManifestFile)
	}
	at := display + "/" + toolfile.ManifestFile
	c.Tool, _, c.Warnings, err = toolfile.ReadPackage(dir, toolfile.ManifestFile, at, nil)
	if err != nil {
		return c, err
	}
	if c.About, err = toolfile.ReadAbout(dir, at); err != nil {
		return c, err
	}
	if n := len(c.About.Permissions); n > permission.Most {
		return c, fmt.Errorf("%s: permissions: it asks for %d, and a package may ask for at most %d, which somebody can read", at, n, permission.Most)
	}
	if n := len(c.About.Requires); n > mostPrograms {
		return c, fmt.Errorf("%s: dependencies: it names %d programs, and a package may name at most %d", at, n, mostPrograms)
	}
	for _, text := range c.About.Permissions {
		p, err := permission.Parse(text)
		switch {
		case err == nil && p.Kind == permission.Remote:
			err = fmt.Errorf("%s is only for remote servers of a registry", p)
		case err == nil && p.Kind == permission.Secret:
			err = fmt.Errorf("%s is asked for by runtime.secret_env: [%s]", p, p.Target)
		}
		if err == nil {
			p, err = s.store.Machine.Resolve(p)
		}
		if err != nil {
			return c, fmt.Errorf("%s: permissions: %w", at, err)
		}
		c.Asked = append(c.Asked, p)
	}
	secrets, err := lockfile.SecretsOf(c.Tool)
	if err != nil {
		return c, fmt.Errorf("%s: %w", at, err)
	}
	if c.Asked = permission.Sorted(append(c.Asked, secrets...)); len(c.Asked) > permission.Most {
		return c, fmt.Errorf("%s: with its secrets it asks for %d permissions, and a package may ask for at most %d, which somebody can read", at, len(c.Asked), permission.Most)
	}
	if _, err := s.store.Machine.Of(c.Asked); err != nil {
		return c, fmt.Errorf("%s: permissions: %w", at, err)
	}
	if c.Tool.Isolation.PullSecret != (manifest.Isolation{}).PullSecret {
		return c, fmt.Errorf("%s: runtime.image_pull_secret: a package may not use secrets of this Orla", at)
	}
	if len(c.Tool.Run.Setup.Command) > 0 {
		return c, fmt.Errorf("%s: runtime.setup: a package may not run a command of its own while it is installed", at)
	}
	if p := c.Tool.Runtime.ToolPrefix; p != nil && *p != c.Tool.Name+"__" {
		return c, fmt.Errorf("%s: runtime.tool_prefix: a package may not choose %q, since its tools could pass for those of others: leave it out, or set %q", at, *p, c.Tool.Name+"__")
	}
	return c, brings(dir)
}

// ServerFile is the file of a package that is an McpServer, which Orla has written.
const ServerFile = "server.yaml"

// checkServer reads the McpServer in a stage. One that is an image has the network of its engine; one that is elsewhere
// gets what its tools are called with.
func checkServer(stage, version, registry string) (c Content, err error) {
	dir, err := filepath.EvalSymlinks(stage)
	if err != nil {
		return c, err
	}
	found := discover.Validate(dir)
	for _, p := range found.Problems {
		if p.Severity == manifest.Fault || p.Denies {
			return c, p.Err
		}
		c.Warnings = append(c.Warnings, p.Err)
	}
	if len(found.Tools) != 1 || !found.Tools[0].Runtime.Generated || !found.Rules.Empty() || len(found.Secrets) > 0 {
		return c, errors.New("it is not one McpServer")
	}
	c.Tool = found.Tools[0]
	if c.Tool.Version = version; !manifest.ValidVersion(version) {
		return c, fmt.Errorf("%q is not a version", version)
	}
	asked := permission.Permission{Kind: permission.Network}
	if remote := c.Tool.Runtime.Remote; remote != nil {
		if asked, err = permission.RemoteOf(remote.Endpoint); err != nil {
			return c, err
		}
		if asked.Near() && !origin.OnThisMachine(registry) {
			return c, fmt.Errorf("its server %s is not a name in public networks: only a registry on this machine may name a server in a local network or on this machine", asked.Target)
		}
	}
	secrets, err := lockfile.SecretsOf(c.Tool)
	if err != nil {
		return c, err
	}
	if c.Asked = permission.Sorted(append(secrets, asked)); len(c.Asked) > permission.Most {
		return c, fmt.Errorf("with its secrets it asks for %d permissions, and a package may ask for at most %d, which somebody can read", len(c.Asked), permission.Most)
	}
	return c, nil
}

// brings refuses files that would hold for other tools.
func brings(dir string) error {
	found := discover.Validate(dir)
	for _, p := range found.Problems {
		if p.Denies {
			return fmt.Errorf("it has a document that may be about rules of calls and cannot be read: %s", strings.TrimPrefix(p.Path, dir+"/"))
		}
	}
	switch {
	case !found.Rules.Empty():
		return errors.New("it has documents with rules of calls (ToolPermission, AgentRole or AgentPolicy), which only you can make")
	case len(found.Secrets) > 0:
		return errors.New("it has Secret resources, which only you can make")
	}
	return nil
}

// named checks the name of a package against what was asked for, and what else is in the folder of tools.
func (s *Session) named(c Content, want, tag string) error {
	name, version := c.Tool.Name, c.Tool.Version
	switch {
	case !lockfile.ValidName(name):
		return fmt.Errorf("%q is not a name for a package: it has letters, digits and a single _, . or - between them, so that it does not pass for a tool of another package, and it is not that of a file of Orla's", name)
	case want != "" && name != want:
		return fmt.Errorf("the package calls itself %q, and %q was asked for", name, want)
	case tag != "" && tag != "v"+version:
		return fmt.Errorf("the tag is %s, and %s says version %s: they must match (RFC 3 §7.1)", tag, toolfile.ManifestFile, version)
	}
	entries, err := os.ReadDir(s.store.Dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch {
		case !strings.EqualFold(entry.Name(), name):
		case entry.Name() != name:
			return fmt.Errorf("%s is there already, whose name differs only in case", filepath.Join(s.store.Dir, entry.Name()))
		case !entry.IsDir():
			return fmt.Errorf("%s is there already, and is not a folder", filepath.Join(s.store.Dir, name))
		case regularfile.Within(s.store.Dir, filepath.Join(s.store.Dir, name, toolfile.ManifestFile)) && exists(filepath.Join(s.store.Dir, name, toolfile.ManifestFile)):
			return fmt.Errorf("%s is a tool that was not installed; remove or rename it first", filepath.Join(s.store.Dir, name))
		}
	}
	target := s.store.Folder(name, version)
	if _, err := lockfile.ReadRecord(target); exists(target) && lockfile.IsMissing(err) && s.Lock.Find(name, version) == nil {
		return fmt.Errorf("%s was not installed by orla install; remove it first", target)
	}
	for _, other := range s.Lock.Names() {
		if strings.EqualFold(other, name) && other != name {
			return fmt.Errorf("%s is installed, whose name differs only in case", other)
		}
	}
	return s.alone(&c.Tool)
}

// alone refuses a package with a name that rules could not tell from that of another tool: what they give to that one
// would be the package's as well.
func (s *Session) alone(t *manifest.Tool) error {
	its := manifest.RuleNames(t)
	own := filepath.Join(s.store.Dir, t.Name) + string(filepath.Separator)
	for _, other := range discover.Tools(discover.Options{ToolsDir: s.store.Dir}).Tools {
		if strings.HasPrefix(other.Source, own) {
			continue
		}
		if slices.ContainsFunc(manifest.RuleNames(&other), func(name string) bool { return slices.Contains(its, name) }) {
			if other.Name == t.Name {
				return fmt.Errorf("%s is a tool with this name already; remove or rename it first", other.Source)
			}
			return fmt.Errorf("%s has the tool %q, and rules of calls could not tell the name %q from it; remove or rename that tool first", other.Source, other.Name, t.Name)
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// dependencyFiles are the files that fix the versions of packages of other package managers.
var dependencyFiles = []string{"uv.lock", "requirements.txt", "pyproject.toml", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "package.json"}

// dependencies returns digests of them.
func dependencies(dir string) (map[string]string, error) {
	sums := map[string]string{}
	for _, name := range dependencyFiles {
		const most = 64 << 20
		data, err := regularfile.Read(filepath.Join(dir, name), most)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sums[name] = sum(data)
	}
	return sums, nil
}

// definitions returns digests of the definitions that the manifest has. Those of a capsule that lists its tools
// itself are not known before it runs; orla pins has them then.
func definitions(t manifest.Tool) map[string]string {
	if t.Kind == manifest.Capsule && !t.Runtime.Declared {
		return nil
	}
	text, err := json.Marshal(t.Listed())
	if err != nil {
		return nil // its schemas were checked, so there is no such error
	}
	return map[string]string{t.Name: sum(text)}
}

func sum(data []byte) string {
	of := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(of[:])
}
