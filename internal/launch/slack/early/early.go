// Package early widens the timer slack of a program that serves, before most other packages are initialized: they are
// initialized again in the program that is executed then. It imports little, since Go initializes a package
// as soon as those that it imports are.
package early

import (
	"os"
	"strings"

	"github.com/orla-project/orla/internal/launch/slack"
)

func init() { //nolint:gochecknoinits // main would be too late
	if serves(os.Args[1:]) {
		slack.Widen()
	}
}

// serves reports whether arguments may be those of a program that serves. Others end soon.
func serves(args []string) bool {
	return len(args) == 0 || args[0] == "serve" || strings.HasPrefix(args[0], "-")
}
