package systemd

import "testing"

// SPEC O2: of the entries of Orla's own unit, only those are believed that its own process has written, in this run or
// before, by what journald says. A tool without isolation is in that unit, too.
func TestO2WhatOthersWriteIsNotBelieved(t *testing.T) {
	t.Parallel()
	own := Writer{"100", "/usr/bin/orla", "this", groupsOf("0::/system.slice/orla.service/orla.main\n")}
	terminal := Writer{"100", "/usr/bin/orla", "", groupsOf("0::/user.slice/x.scope\n")}
	type entry struct{ pid, exe, run, group string }
	for name, c := range map[string]struct {
		by   Writer
		of   entry
		want bool
	}{
		"this process": {own, entry{"100", "/usr/bin/orla", "this", "/system.slice/orla.service/orla.main"}, true},
		"this process after an upgrade elsewhere": {own, entry{"100", "/opt/orla", "this", "/system.slice/orla.service/orla.main"}, true},
		"a tool":                           {own, entry{"101", "/usr/bin/python3", "this", "/system.slice/orla.service/notes"}, false},
		"a tool that runs Orla's program":  {own, entry{"101", "/usr/bin/orla", "this", "/system.slice/orla.service/orla.main"}, false},
		"an earlier run":                   {own, entry{"7", "/usr/bin/orla", "earlier", "/system.slice/orla.service/orla.main"}, true},
		"its begin":                        {own, entry{"7", "/usr/bin/orla", "earlier", "/system.slice/orla.service"}, true},
		"a tool of an earlier run":         {own, entry{"100", "/usr/bin/python3", "earlier", "/system.slice/orla.service/orla.main"}, false},
		"Orla's program as a tool of that": {own, entry{"7", "/usr/bin/orla", "earlier", "/system.slice/orla.service/notes"}, false},
		"nobody knows the program":         {own, entry{"100", "", "earlier", "/system.slice/orla.service/orla.main"}, false},
		"nobody knows the run":             {own, entry{"100", "/usr/bin/orla", "", "/system.slice/orla.service/orla.main"}, false},
		"nobody knows anything":            {own, entry{}, false},
		"from a terminal":                  {terminal, entry{"100", "/usr/bin/orla", "", "/user.slice/x.scope"}, true},
		"another process at a terminal":    {terminal, entry{"101", "/usr/bin/orla", "", "/user.slice/x.scope"}, false},
		"without /proc":                    {Writer{pid: "100", invocation: "this"}, entry{"100", "", "earlier", ""}, false},
	} {
		fields := map[string]string{"_PID": c.of.pid, "_EXE": c.of.exe, "_SYSTEMD_INVOCATION_ID": c.of.run, "_SYSTEMD_CGROUP": c.of.group}
		if got := c.by.Wrote(func(name string) string { return fields[name] }); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
