package oneshot

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/exit"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/call/rules"
	"github.com/orla-project/orla/internal/mcp/peer"
	"github.com/orla-project/orla/internal/testing/testkit"
	"github.com/orla-project/orla/manifest"
)

// configured is a configuration with one tool.
func configured(t *testing.T) *config.Loaded {
	t.Helper()
	dir := t.TempDir()
	testkit.WriteTool(t, dir, "tools/greet.sh", "#!/bin/sh\n# /// tool\n# description: Greets.\n# ///\necho hello\n")
	cfg, err := (&config.Loader{Path: testkit.WriteTool(t, dir, "orla.yaml", "tools_dir: "+dir+"/tools\nstate_dir: "+dir+"/state\n")}).Load()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// SPEC J2: a tool is called without a running Orla. Wrong arguments are wrong usage, and a tool that does not exist is said to be that.
func TestJ2ACallWithoutAnOrla(t *testing.T) {
	cfg := configured(t)
	answer, arguments := "", error(nil)
	call := Call{
		Tool:      "greet",
		Arguments: func(any) (json.RawMessage, error) { return json.RawMessage(`{}`), arguments },
		Answered: func(result json.RawMessage) error {
			answer = string(result)
			return errors.New("as answered")
		},
		Log: slog.New(slog.DiscardHandler),
	}
	if err := call.Make(t.Context(), cfg, ""); err == nil || err.Error() != "as answered" || !strings.Contains(answer, "hello") {
		t.Errorf("answered %s, %v", answer, err)
	}
	answer, arguments = "", errors.New("odd")
	err := call.Make(t.Context(), cfg, "")
	if f, ok := errors.AsType[*exit.Error](err); !ok || f.Code != exit.Usage || answer != "" {
		t.Errorf("wrong arguments: %v, %s", err, answer)
	}
	call.Tool = "absent"
	if none, ok := errors.AsType[*NoToolError](call.Make(t.Context(), cfg, "")); !ok || len(none.Found.Tools) != 1 {
		t.Errorf("a tool that does not exist: %+v", none)
	}
	if said, err := Can(cfg, "", rules.Caller{Name: "ann", Agent: "bot"}, "greet"); err != nil || said.Verdict != manifest.Allow || said.Caller != "ann" || said.Agent != "bot" || said.Tool != "greet" {
		t.Errorf("the rules say %+v, %v", said, err)
	}
	if _, ok := errors.AsType[*NoToolError](func() error { _, err := Can(cfg, "", rules.Caller{}, "absent"); return err }()); !ok {
		t.Error("the rules say something of a tool that does not exist")
	}
}

// SPEC J2: the error of a call has what its process wrote to stderr, which is shown nowhere else.
func TestJ2AFailedCallShowsStderr(t *testing.T) {
	life := peer.Life{State: "CRASHED", Reason: "exit status 1", Stderr: "Traceback"}
	odd := errors.New("odd")
	for _, c := range []struct {
		err  error
		life peer.Life
		want string
	}{
		{odd, life, "odd"},
		{fault.New(fault.Timeout, "late"), life, "late"},
		{fault.New(fault.Crashed, "it ended"), life, "it ended; its last lines on stderr:\nTraceback"},
		{fault.New(fault.Crashed, "it ended"), peer.Life{}, "it ended"},
		{fault.Unsent(fault.New(fault.StartFailed, "no")), life, "svc is CRASHED: exit status 1; its last lines on stderr:\nTraceback"},
		{fault.Unsent(fault.New(fault.StartFailed, "no")), peer.Life{}, "no"},
	} {
		if got := failed(c.err, "svc", c.life); got == nil || !strings.HasSuffix(got.Error(), c.want) {
			t.Errorf("%v: %v, want %s", c.err, got, c.want)
		}
	}
}
