package systemd

import (
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Writer tells the entries of the journal that Orla has written from those of others in its unit. A tool without
// isolation is in that unit, too, and may write what it likes into any field but those that journald adds.
type Writer struct {
	pid, exe, invocation string
	groups               []string // in which Orla's own process was, in this run and before
}

// Own returns the Writer that this process is, as the current program and those before it.
func Own() Writer {
	exe, _ := os.Executable() // without /proc nothing is believed
	text, _ := os.ReadFile("/proc/self/cgroup")
	return Writer{strconv.Itoa(os.Getpid()), exe, os.Getenv("INVOCATION_ID"), groupsOf(string(text))}
}

// groupsOf returns the control group in the text of /proc/PID/cgroup, and the one of its unit, where Orla begins.
func groupsOf(text string) (groups []string) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[0] != "0" && parts[1] != "name=systemd" {
			continue
		}
		groups = append(groups, parts[2])
		for dir := parts[2]; dir != "/" && dir != "."; dir = path.Dir(dir) {
			if isUnit(path.Base(dir)) {
				groups = append(groups, dir)
				break
			}
		}
	}
	return groups
}

// isUnit reports whether a control group has the name of a unit that has processes.
func isUnit(name string) bool {
	return strings.HasSuffix(name, ".service") || strings.HasSuffix(name, ".scope")
}

// Wrote reports whether an entry is one of Orla's own process. field returns the fields that journald has added, which
// begin with _. In this run, that is the process with this pid, which an upgrade keeps. In another run, it is a process
// of the same program in the group that is Orla's own. What cannot be told is not believed.
func (w Writer) Wrote(field func(name string) string) bool {
	run := field("_SYSTEMD_INVOCATION_ID")
	switch {
	case w.invocation == "" || run == w.invocation:
		return field("_PID") == w.pid
	case run == "" || w.exe == "" || field("_EXE") != w.exe:
		return false
	}
	return slices.Contains(w.groups, field("_SYSTEMD_CGROUP"))
}
