package wiring

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
)

// SPEC R3: environments that no tool needs are removed, but not by orla dev, which serves one tool of many.
func TestR3OrlaDevKeepsEnvironments(t *testing.T) {
	dir := t.TempDir()
	env := filepath.Join(dir, "state", "env", strings.Repeat("0", 32))
	if err := os.MkdirAll(env, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := &config.Loaded{Config: config.Config{ToolsDir: dir, StateDir: filepath.Join(dir, "state")}}
	for _, only := range []string{"tool.py", ""} {
		cfg.Only = only
		var p Packages
		p.open(cfg, nil, nil, nil, slog.New(slog.DiscardHandler))
		p.Keep(nil)
		p.store.Close()
		if _, err := os.Stat(env); (err == nil) != (only != "") {
			t.Errorf("with orla dev %q: %v", only, err)
		}
	}
}
