package systemd

import (
	"os"
	"path/filepath"
	"testing"
)

// SPEC-TOOLS 8.8: it is known of which unit the journal may drop lines, so that an audit log in it is not taken for whole.
func TestT88WhatTheJournalDrops(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/orla.service/orla.main\n":                             "orla.service",
		"9:name=systemd:/system.slice/orla.service\n4:memory:/x.service\n":      "orla.service",
		"9:name=systemd:/\n0::/system.slice/orla.service\n":                     "orla.service",
		"0::/user.slice/user-7.slice/user@7.service/app.slice/orla.service/x\n": "user@7.service",
		"0::/user.slice/user-7.slice/session-2.scope\n":                         "session-2.scope",
		"0::/\n":   "",
		"nonsense": "",
	} {
		if got := journalUnit(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for name, c := range map[string]struct {
		burst, interval string
		want            bool
	}{
		"nothing is set":   {"", "", false},
		"as AUDIT.md says": {"1000000", "1000000", true},
		"more lines":       {"100000", "", false},
		"a shorter time":   {"", "1000000", false},
		"no limit":         {"0", "", true},
		"no time":          {"", "0", true},
		"not a number":     {"many", "1000000", false},
	} {
		dir := t.TempDir()
		for setting, value := range map[string]string{"burst": c.burst, "interval": c.interval} {
			if value == "" {
				continue
			}
			if err := os.Symlink(value, filepath.Join(dir, "log-rate-limit-"+setting+":orla.service")); err != nil {
				t.Fatal(err)
			}
		}
		if got := takesAll(dir, "orla.service"); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		if takesAll(dir, "other.service") {
			t.Errorf("%s: another unit has it, too", name)
		}
	}
}
