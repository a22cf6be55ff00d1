package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/file/yamldoc"
)

// Misspelled returns a sentence for each variable of the environment whose name is nearly that of a setting, sorted: it sets nothing.
// Variables that Orla gives to tools, and those of others, are not similar to any.
func (l *Loader) Misspelled() (list []string) {
	known := Keys()
	for _, kv := range l.Environ {
		name, value, _ := strings.Cut(kv, "=")
		key, ours := strings.CutPrefix(name, variable(""))
		if key = strings.ToLower(key); !ours || value == "" || slices.Contains(known, key) && name == variable(key) {
			continue
		}
		if near := yamldoc.Nearest(key, known); near != "" {
			list = append(list, fmt.Sprintf("%s is not a setting; did you mean %s?", name, variable(near)))
		}
	}
	slices.Sort(list)
	return list
}
