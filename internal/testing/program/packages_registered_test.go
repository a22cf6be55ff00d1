package program

import (
	"strings"
	"testing"
)

// RFC 3 §7.1, §7.4 and §9.1: a running Orla serves what is installed without another step: a simple tool for each call, and a capsule
// with a lifecycle. RFC 3 §10: list names it with its version.
func TestRFC3S7_4InstalledToolsAreRegistered(t *testing.T) {
	t.Parallel()
	i := newInstallable(t)
	i.write(i.dir, "tools/other.sh", "#!/bin/sh\necho other\n")
	o := i.serve()
	for _, c := range []struct{ version, run, more, kind string }{
		{"1.0.0", "#!/bin/sh\necho VERSION\n", "", "simple"},
		{"1.1.0", shCapsule, aCapsule, "capsule"},
	} {
		i.version(c.version, c.run, c.more)
		i.must("install", "--local", i.src)
		o.waitListed("say")
		if got := strings.TrimSpace(o.mustCall("say")); got != c.version {
			t.Errorf("it says %q", got)
		}
		if s := o.toolStatus("say"); s.Kind != c.kind || s.Version != c.version {
			t.Errorf("it is %+v", s)
		}
		if out := i.must("list"); !strings.Contains(out, "say") || !strings.Contains(out, c.version) {
			t.Errorf("list prints %s", out)
		}
	}
}
