package systemd

import (
	"strings"
	"testing"
	"time"
)

// SPEC O2: the entries are those of Orla's own service, of this system or of a user, or else of this process.
func TestO2WhichEntriesAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/orla.service/orla.main\n":                                   " _SYSTEMD_UNIT=orla.service",
		"0::/system.slice/orla@two.service\n":                                         " _SYSTEMD_UNIT=orla@two.service",
		"1:name=systemd:/system.slice/orla.service\n4:memory:/x.service\n":            " _SYSTEMD_UNIT=orla.service",
		"0::/user.slice/user-7.slice/user@7.service/app.slice/orla.service/capsule\n": " _SYSTEMD_USER_UNIT=orla.service _UID=",
		"0::/user.slice/user-7.slice/session-2.scope\n":                               " _PID=",
		"0::/user.slice/user-7.slice/user@7.service/app.slice/term.scope\n":           " _PID=",
		"0::/user.slice/user-7.slice/user@7.service/app.slice\n":                      " _PID=",
		"0::/system.slice/orla.service/x.scope\n":                                     " _PID=",
		"0::/\n":   " _PID=",
		"nonsense": " _PID=",
	} {
		q := JournalQuery{Unit: unitOf(text), Since: time.Unix(100, 5)}
		if got := strings.Join(q.args(), " "); !strings.HasPrefix(got, "--output=json --all --no-pager --since=@100 SYSLOG_IDENTIFIER=orla"+want) {
			t.Errorf("%q: %s", text, got)
		}
	}
}
