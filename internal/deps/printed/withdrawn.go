package printed

import (
	"regexp"

	"github.com/orla-project/orla/internal/observe/brief"
)

const (
	mostWithdrawn = 20  // of one program
	longestReason = 300 // bytes
)

// Withdrawal is a version that its publisher has withdrawn: yanked from an index of Python, or deprecated in a registry of npm.
type Withdrawal struct {
	Package, Version string
	Reason           string // by the publisher; "" for none
}

func (w Withdrawal) String() string {
	text := w.Package + " " + w.Version + " was withdrawn by its publisher"
	if w.Reason != "" {
		text += ": " + w.Reason
	}
	return text
}

// NewWithdrawal returns the Withdrawal of a version, with a reason of any length.
func NewWithdrawal(name, version, reason string) Withdrawal {
	return Withdrawal{Package: brief.Cut(name, longestReason), Version: brief.Cut(version, longestReason), Reason: brief.Cut(reason, longestReason)}
}

// withdrawals are how installers say it: uv, pip, and npm and pnpm. pip has the reason in another line, and this one has addresses,
// which may have a password.
var withdrawals = []*regexp.Regexp{
	regexp.MustCompile("^warning: `([^`=]+)==([^`]+)` is yanked(?: \\(reason: (.*)\\))?$"),
	regexp.MustCompile(`^WARNING: The candidate selected for download or install is a yanked version: '([^']+)' candidate \(version (\S+) at ()`),
	regexp.MustCompile(`(?i)^(?:npm )?warn +deprecated +(@?[^@\s]+)@([^\s:]+)(?:: (.*))?$`),
}

// withdrawn reads what a line says of a version that was withdrawn.
func withdrawn(line string) (w Withdrawal, ok bool) {
	for _, form := range withdrawals {
		if m := form.FindStringSubmatch(line); m != nil {
			return NewWithdrawal(m[1], m[2], unquoted(m[3])), true
		}
	}
	return Withdrawal{}, false
}

// unquoted is a text without the quotes around it.
func unquoted(text string) string {
	if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
		return text[1 : n-1]
	}
	return text
}
