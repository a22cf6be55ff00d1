package simple

import (
	"slices"
	"strings"

	"github.com/orla-project/orla/manifest"
)

// kept are the variables that a narrowed environment always has (SPEC C2).
var kept = [...]string{"PATH", "HOME", "LANG", "TMPDIR"}

// CleanEnv returns environ without what is Orla's own: its settings, secrets,
// and what systemd means for Orla alone (SPEC C2).
func CleanEnv(environ []string) []string {
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, ok := strings.Cut(kv, "=")
		if !ok {
			return true
		}
		switch name {
		case "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM", "CREDENTIALS_DIRECTORY", "MAINPID", "MANAGERPID", "PWD", "OLDPWD":
			return true
		}
		for _, prefix := range [...]string{"ORLA_", "ORLOJ_SECRET_", "WATCHDOG_", "LISTEN_", "FDSTORE"} {
			if strings.HasPrefix(name, prefix) {
				return true
			}
		}
		return false
	})
}

// inherited returns what policy lets through of a clean environment.
func inherited(environ []string, policy manifest.EnvPolicy) []string {
	if !policy.Narrow {
		return environ
	}
	return slices.DeleteFunc(slices.Clone(environ), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return !slices.Contains(kept[:], name) && !slices.Contains(policy.Names, name)
	})
}

// lastOfEach keeps the last value of each variable.
func lastOfEach(environ []string) []string {
	seen := make(map[string]bool, len(environ))
	out := make([]string, 0, len(environ))
	for _, kv := range slices.Backward(environ) {
		if name, _, _ := strings.Cut(kv, "="); !seen[name] {
			seen[name] = true
			out = append(out, kv)
		}
	}
	slices.Reverse(out)
	return out
}
