package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/internal/packages/lockfile"
	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
)

const (
	defaultMaxPackage     = 256 << 20 // SPEC M4
	defaultMaxEnvironment = 2 << 30   // SPEC R6
)

// PackageConfig is the operator's word about an installed package (SPEC M7).
type PackageConfig struct {
	Name        string   `json:"name,omitempty" jsonschema:"The name of the package."`
	Source      string   `json:"source,omitempty" jsonschema:"Where the package comes from, as orla list shows it. It holds for a package from there alone, and is needed if it gives more than the default."`
	Isolation   string   `json:"isolation,omitempty" jsonschema:"Where its processes run in place of sandboxed: none or container. Default: none of its own."`
	Permissions []string `json:"permissions,omitempty" jsonschema:"What it may do in place of what was granted: filesystem:read[:PATH], filesystem:write[:PATH], network, env:NAME. Default: what was granted."`
	Pin         string   `json:"pin,omitempty" jsonschema:"off, warn or hold, as the key pin. Default: hold."`
	Scripts     bool     `json:"scripts,omitempty" jsonschema:"Installing its dependencies may run their scripts. Default false."`

	Timeout   yamldoc.Duration `json:"timeout,omitempty" jsonschema:"Longest timeout that it may choose for its calls. Default: the configured timeout."`
	MaxOutput yamldoc.Size     `json:"max_output,omitempty" jsonschema:"Most output that it may choose to have kept. Default: the configured max_output."`
}

// PackageOf returns the operator's word about an installed package: that with its name, unless it is about a package from
// elsewhere.
func (c *Config) PackageOf(name string, source lockfile.Source) PackageConfig {
	for _, p := range c.Packages {
		if p.Name == name && p.IsAbout(source) {
			return p
		}
	}
	return PackageConfig{Name: name}
}

// IsAbout reports whether p holds for a package from a source.
func (p PackageConfig) IsAbout(source lockfile.Source) bool {
	return p.Source == "" || p.Source == source.String()
}

// Gives lists, for a person, what p gives a package beyond what one may do that nobody has said a word about.
func (p PackageConfig) Gives() (list []string) {
	if p.Isolation == string(manifest.IsolationNone) {
		list = append(list, "isolation: none: it runs as you do, outside of a sandbox, with your files, variables and network")
	}
	if len(p.Permissions) > 0 {
		list = append(list, "permissions, in place of what it asks for: "+strings.Join(p.Permissions, ", "))
	}
	if p.Scripts {
		list = append(list, "scripts: installing its dependencies may run their scripts")
	}
	if p.Pin != "" && p.Pin != string(manifest.PinHold) {
		list = append(list, "pin: "+p.Pin+": its tools may change what they say of themselves")
	}
	if p.Timeout > 0 {
		list = append(list, fmt.Sprintf("timeout: its calls may take up to %s", p.Timeout))
	}
	if p.MaxOutput > 0 {
		list = append(list, fmt.Sprintf("max_output: up to %s of its output may be kept", p.MaxOutput))
	}
	return list
}

// packages checks registries, max_package and packages.
func (v *verdict) packages() {
	if v.MaxPackage <= 0 {
		v.wrong("max_package", "must be above 0, got %s", v.MaxPackage)
	}
	if v.MaxEnvironment <= 0 {
		v.wrong("max_environment", "must be above 0, got %s", v.MaxEnvironment)
	}
	for i, text := range v.Registries {
		if u, err := url.Parse(text); err != nil || text == "" || strings.HasPrefix(text, "-") || u.Scheme == "" && !strings.Contains(text, ":") {
			v.wrongItem("registries", i, "%q is not the URL of a registry", text)
		} else if strings.Contains(text, "://") && !slices.Contains([]string{"https", "ssh", "http", "git", "file"}, u.Scheme) {
			v.wrongItem("registries", i, "a registry is read by https or ssh, and not by %q", u.Scheme)
		}
	}
	seen := map[string]bool{}
	for i, p := range v.Packages {
		switch {
		case p.Name == "":
			v.doc.Faultf(fmt.Sprintf("packages[%d].name", i), "is required")
		case !manifest.ValidName(p.Name):
			v.wrongItem("packages", i, "%q is not the name of a package", p.Name)
		case seen[p.Name]:
			v.wrongItem("packages", i, "%s is there twice", p.Name)
		case !slices.Contains([]string{"", string(manifest.IsolationNone), string(manifest.IsolationSandboxed), string(manifest.IsolationContainer)}, p.Isolation):
			v.wrongItem("packages", i, "isolation must be none, sandboxed or container, got %q", p.Isolation)
		case p.Pin != "" && !slices.Contains(manifest.Pin("").Values(), p.Pin):
			v.wrongItem("packages", i, "pin must be off, warn or hold, got %q", p.Pin)
		case p.Timeout < 0 || p.MaxOutput < 0:
			v.wrongItem("packages", i, "timeout and max_output must be above 0")
		case p.Source == "" && len(p.Gives()) > 0:
			v.wrongItem("packages", i, "%s gets more than other packages, so it needs source: where it comes from, as orla list shows it; a package of the same name from elsewhere gets nothing of that", p.Name)
		}
		seen[p.Name] = true
		for j, text := range p.Permissions {
			if _, err := permission.Parse(text); err != nil {
				v.doc.Faultf(fmt.Sprintf("packages[%d].permissions[%d]", i, j), "%v", err)
			}
		}
	}
}
