package container_test

import (
	"testing"
)

// SPEC-TOOLS 7.3: a process lives in a container of its own, and its streams and
// exit code are the process's.
func TestT73Runs(t *testing.T) {
	b := newBench(t, nil)
	l := b.launcher(nil)
	spec := sh(`cat; echo to stderr >&2; id -u; pwd; exit 42`)
	spec.Input = []byte("hello\n")
	o := b.run(l, spec)
	if o.exit.Code != 42 || o.stdout != "hello\n65532\n/tmp\n" || o.stderr != "to stderr\n" {
		t.Errorf("%+v", o)
	}
	eventually(t, "no container is left", func() bool { return len(b.containers()) == 0 })
}
