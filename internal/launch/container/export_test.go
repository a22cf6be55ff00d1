package container

import "strings"

// Well is what a container tells that is a sandbox, as head prints it.
func Well() string {
	var text strings.Builder
	for name, part := range seen() {
		text.WriteString("==> " + name + " <==\n" + part + "\n\n")
	}
	return text.String()
}
