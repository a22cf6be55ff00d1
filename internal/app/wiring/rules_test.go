package wiring

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/discovery"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/call/governance"
	"github.com/orla-project/orla/internal/testing/testkit"
)

// SPEC-TOOLS 8.3, SPEC J1: the doctor names each file or folder because of which every call is denied, says what to do, and
// changes nothing.
func TestT83TheDoctorNamesRulesThatAreGone(t *testing.T) {
	dir := t.TempDir()
	cfg := &config.Loaded{}
	cfg.ToolsDir, cfg.StateDir = filepath.Join(dir, "tools"), filepath.Join(dir, "state")
	rules := func(name string) string { return filepath.Join(cfg.ToolsDir, "rules", name) }
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(rules(""), 0o700), os.WriteFile(rules(name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const policy = "apiVersion: orloj.dev/v1\nkind: AgentPolicy\nmetadata: {name: p}\nspec: {apply_mode: global, blocked_tools: [hello]}\n"
	says := func(when string, level doctor.Level, fix string, words ...string) {
		t.Helper()
		memory := stateFile(cfg, "rules")
		before, _ := os.ReadFile(memory)
		all := ExamineRules(cfg, discovery.Find(cfg, ""), "orla validate")
		if len(all) != 1 || all[0].Check != "rules" || all[0].Level != level || all[0].Fix != fix {
			t.Errorf("%s: %+v", when, all)
			return
		}
		for _, word := range words {
			if !strings.Contains(all[0].Text, word) {
				t.Errorf("%s: it does not say %q: %s", when, word, all[0].Text)
			}
		}
		if after, _ := os.ReadFile(memory); string(after) != string(before) {
			t.Errorf("%s: it has changed what Orla knows: %s", when, after)
		}
	}
	testkit.WriteTool(t, cfg.ToolsDir, "hello", "#!/bin/sh\n")
	says("no rules", doctor.OK, "", "there are no governance documents")
	write("a.yaml", policy)
	says("rules that Orla has not seen", doctor.OK, "", "1 governance document in order")

	found := discovery.Find(cfg, "")
	(&governance.Gate{Memory: stateFile(cfg, "rules")}).Set(&found, cfg)
	says("rules", doctor.OK, "", "1 governance document in order")
	write("a.yaml", "")
	says("an empty file", doctor.Fail, "", rules("a.yaml")+" is empty, and had rules; every call is denied", acceptNoRules)
	write("a.yaml", "kind: AgentPolicy\nspec: [\n")
	says("a file that cannot be read", doctor.Fail, "orla validate", rules("a.yaml")+":", "; every call is denied")
	if err := os.Remove(rules("a.yaml")); err != nil {
		t.Fatal(err)
	}
	says("the last file is gone", doctor.Fail, "", cfg.ToolsDir+" had rules, in "+rules("a.yaml"), "every call is denied", acceptNoRules)
	if err := os.Rename(cfg.ToolsDir, cfg.ToolsDir+".away"); err != nil {
		t.Fatal(err)
	}
	says("the folder is gone", doctor.Fail, "", cfg.ToolsDir+" is not there, and the rules in it", acceptNoRules)
}

const acceptNoRules = "orla reload --accept-no-rules"
