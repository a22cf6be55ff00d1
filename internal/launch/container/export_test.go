package container

import (
	"strings"

	"github.com/orla-project/orla/internal/launch"
)

// Well is what a container tells that is a sandbox, as head prints it.
func Well() string {
	var text strings.Builder
	for name, part := range seen() {
		text.WriteString("==> " + name + " <==\n" + part + "\n\n")
	}
	return text.String()
}

// Variables returns what of the variables of a tool is in the engine's environment, and what is in the file.
func Variables(env []string) (environ []string, file string, err error) {
	v, err := plan{made: &made{podman: true}, spec: launch.Spec{Env: env}}.variables()
	return v.environ, v.file, err
}
