//go:build amd64 || arm64

package sandbox

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/testing/needs"
)

// TestM7AFolderThatIsExchanged: a granted or hidden folder that is another one when it is mounted than when it was
// checked refuses the start (SPEC M7).
func TestM7AFolderThatIsExchanged(t *testing.T) {
	needs.Root(t, "make a sandbox everywhere")
	local, err := launch.NewLocal(launch.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	host := NewHost(HostOptions{Local: local, Log: slog.New(slog.DiscardHandler)})
	defer host.Close()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	granted, hidden := filepath.Join(dir, "granted"), filepath.Join(dir, "granted", "hidden")
	spec := launch.Spec{Path: "/bin/true", Argv: []string{"true"}, Env: []string{}, Input: []byte{}, Whole: true}
	for _, exchanged := range []string{granted, hidden} {
		if err := os.MkdirAll(hidden, 0o755); err != nil { //nolint:gosec // nothing but the sandbox is to be in the way
			t.Fatal(err)
		}
		v, err := newView(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		opts := Options{Writes: []string{granted}, Hidden: []string{hidden}}
		if err := v.open(opts, nil); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(exchanged, filepath.Join(dir, filepath.Base(exchanged)+"-before")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(hidden, 0o755); err != nil { //nolint:gosec // the same
			t.Fatal(err)
		}
		if p, reason, err := host.start(t.Context(), spec, v, opts); reason == nil || !strings.Contains(reason.String(), "was exchanged") {
			t.Errorf("with another %s it starts: %v %v %v", exchanged, p, reason, err)
		}
	}
}
