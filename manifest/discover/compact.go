package discover

import (
	"reflect"

	"github.com/orla-project/orla/internal/file/yamldoc"
	"github.com/orla-project/orla/manifest"
)

// compact is what is remembered of a declaration.
type compact struct {
	whole *declaration // nil for a tool that is all that there is
	tool  manifest.Compact
}

// compactOf returns what to remember of a declaration. What that points to must not be changed after that.
func compactOf(d *declaration) *compact {
	c := &compact{tool: d.tool.Compact()}
	if reflect.DeepEqual(c.declaration(), d) {
		return c
	}
	whole := *d
	return &compact{whole: &whole}
}

// declaration returns what was remembered. It may be changed, but for what it points to.
func (c *compact) declaration() *declaration {
	if c.whole != nil {
		d := *c.whole
		return &d
	}
	d := &declaration{tool: c.tool.Tool()}
	d.display, d.name, d.named = d.tool.Source, d.tool.Name, yamldoc.Fault{File: d.tool.Source, Key: "metadata.name"}
	return d
}
