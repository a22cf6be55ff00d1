package cli

import (
	"errors"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC J3: a tool that was made a moment ago, and that a running Orla has not read yet, is not just unknown.
func TestJ3AToolThatIsNotReadYet(t *testing.T) {
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "new.sh", "#!/bin/sh\n")
	cfg := &config.Loaded{Config: config.Defaults()}
	cfg.ToolsDir = dir
	unknown := &exit.Error{Code: exit.Failed, Err: errors.New("there is no tool"), Hint: "orla tools lists all tools"}
	for name, want := range map[string]string{
		"new":   "its file is there, and the running Orla has not read it yet; try again",
		"other": unknown.Hint,
	} {
		f, ok := errors.AsType[*exit.Error](orUnread(unknown, cfg, t.TempDir(), name))
		if !ok || f.Code != exit.Failed || f.Hint != want {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
