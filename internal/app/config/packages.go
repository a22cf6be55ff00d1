package config

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/manifest"
)

// defaultMaxPackage is the default of max_package (SPEC M4).
const defaultMaxPackage = 256 << 20

// PackageConfig is the operator's word about an installed package (SPEC M7).
type PackageConfig struct {
	Name        string   `json:"name,omitempty" jsonschema:"The name of the package."`
	Isolation   string   `json:"isolation,omitempty" jsonschema:"Where its processes run in place of sandboxed: none or container. Default: none of its own."`
	Permissions []string `json:"permissions,omitempty" jsonschema:"What it may do in place of what was granted: filesystem:read[:PATH], filesystem:write[:PATH], network, env:NAME. Default: what was granted."`
	Pin         string   `json:"pin,omitempty" jsonschema:"off, warn or hold, as the key pin. Default: hold."`
	Scripts     bool     `json:"scripts,omitempty" jsonschema:"Installing its dependencies may run their scripts. Default false."`
}

// PackageOf returns the operator's word about a package.
func (c *Config) PackageOf(name string) PackageConfig {
	for _, p := range c.Packages {
		if p.Name == name {
			return p
		}
	}
	return PackageConfig{Name: name}
}

// packages checks registries, max_package and packages.
func (v *verdict) packages() {
	if v.MaxPackage <= 0 {
		v.wrong("max_package", "must be above 0")
	}
	for i, text := range v.Registries {
		if u, err := url.Parse(text); err != nil || text == "" || strings.HasPrefix(text, "-") || u.Scheme == "" && !strings.Contains(text, ":") {
			v.wrongItem("registries", i, "%q is not the URL of a registry", text)
		}
	}
	seen := map[string]bool{}
	for i, p := range v.Packages {
		switch {
		case !manifest.ValidName(p.Name):
			v.wrongItem("packages", i, "%q is not the name of a package", p.Name)
		case seen[p.Name]:
			v.wrongItem("packages", i, "%s is there twice", p.Name)
		case !slices.Contains([]string{"", string(manifest.IsolationNone), string(manifest.IsolationSandboxed), string(manifest.IsolationContainer)}, p.Isolation):
			v.wrongItem("packages", i, "isolation must be none, sandboxed or container, got %q", p.Isolation)
		case p.Pin != "" && !slices.Contains(manifest.Pin("").Values(), p.Pin):
			v.wrongItem("packages", i, "pin must be off, warn or hold, got %q", p.Pin)
		}
		seen[p.Name] = true
		for j, text := range p.Permissions {
			if _, err := permission.Parse(text); err != nil {
				v.doc.Faultf(fmt.Sprintf("packages[%d].permissions[%d]", i, j), "%v", err)
			}
		}
	}
}
