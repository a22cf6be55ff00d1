package systemd

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// unitSettings is where systemd tells journald what units set, each as a link.
	unitSettings = "/run/systemd/units"
	// enough is how many lines in a second no Orla writes.
	enough = 100_000
	// What journald takes of a unit that sets nothing, if nobody has changed its configuration.
	journalBurst, journalInterval = 10_000, 30 * time.Second
)

// JournalLimits returns the unit that this process belongs to if the journal may drop lines of it, and tells nobody:
// beyond a number of lines in a time, for which the unit does not set enough. It returns "" if nothing is dropped, as
// far as can be known.
func JournalLimits() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil { // without /proc there is no systemd
		return ""
	}
	unit := journalUnit(string(text))
	if unit == "" || takesAll(unitSettings, unit) {
		return ""
	}
	return unit
}

// journalUnit returns whose limit journald counts the lines for, by the text of /proc/PID/cgroup: the outermost unit, so
// of all that a user's own systemd runs it is that one.
func journalUnit(text string) string {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[0] != "0" && parts[1] != "name=systemd" {
			continue
		}
		for name := range strings.SplitSeq(parts[2], "/") {
			if isUnit(name) {
				return name
			}
		}
	}
	return ""
}

// takesAll reports whether the settings of a unit let the journal take all that Orla writes.
func takesAll(dir, unit string) bool {
	set := func(name string, otherwise int64) int64 {
		text, err := os.Readlink(filepath.Join(dir, "log-rate-limit-"+name+":"+unit))
		if n, bad := strconv.ParseInt(text, 10, 64); err == nil && bad == nil {
			return n
		}
		return otherwise
	}
	burst, interval := set("burst", journalBurst), set("interval", journalInterval.Microseconds())
	return burst == 0 || interval == 0 || burst*time.Second.Microseconds()/interval >= enough // 0 means without a limit
}
