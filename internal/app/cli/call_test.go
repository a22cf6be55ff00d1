package cli

import (
	"errors"
	"io"
	"log"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/app/terminal"
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

// SPEC S2: what Go's own library says of a service does not reach the terminal of a command.
func TestS2WhatGosLibraryLogsIsNotShown(t *testing.T) {
	to := log.Writer()
	defer log.SetOutput(to)
	if code := Run([]string{"version"}, terminal.Streams{Out: io.Discard, Err: io.Discard}); code != exit.OK || log.Writer() != io.Discard {
		t.Errorf("exit code %d, and the library writes to %v", code, log.Writer())
	}
}
