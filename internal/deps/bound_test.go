package deps

import (
	"strings"
	"testing"
)

// SPEC R6 and M4: what an installed package needs is bounded, while it is built and when it is whole, and what is too large leaves
// nothing. A tool of the user's own installs what it wants.
func TestR6EnvironmentsOfPackagesAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		script  string
		foreign bool
		want    string
	}{
		"one that does not end": {"while :; do head -c 1000000 /dev/zero >>$ORLA_ENV/a; done", true, "over 4MiB"},
		"one that ends":         {"head -c 5000000 /dev/zero >$ORLA_ENV/a", true, "over 4MiB"},
		"one that is small":     {"head -c 4000000 /dev/zero >$ORLA_ENV/a", true, ""},
		"one of the user's own": {"head -c 5000000 /dev/zero >$ORLA_ENV/a", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := store(t, dir)
			s.opts.MaxBytes = 4 << 20
			from := shell(t, c.script)
			if c.foreign {
				from.Package = "a h1:x"
			}
			_, err := s.Build(t.Context(), detect(t, s, from), quiet)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || len(left(t, dir)) > 0) {
				t.Errorf("%v; it leaves %q", err, left(t, dir))
			}
		})
	}
}
