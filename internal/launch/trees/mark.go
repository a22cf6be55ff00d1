package trees

import (
	"slices"
	"strings"
)

// MarkVariable is in the environment of every process that Orla starts, and so
// of its descendants. It holds INSTANCE.ID; when Orla itself runs in a tool of
// another Orla, it holds what that one wrote before, and a slash. So what the
// inner one leaves is found by the outer one as well.
const MarkVariable = "ORLA_INSTANCE"

// Marked returns env with the mark, and without any other.
func Marked(env []string, outer, mark string) []string {
	if outer != "" {
		mark = outer + "/" + mark
	}
	all := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, MarkVariable+"=") {
			all = append(all, kv)
		}
	}
	return append(all, MarkVariable+"="+mark)
}

// Bears reports whether an environment, as the kernel gives it, holds a mark.
// One that ends in a dot stands for all of its instance.
func Bears(environ, mark string) bool {
	return slices.ContainsFunc(marksIn(environ), func(one string) bool {
		return one == mark || strings.HasSuffix(mark, ".") && strings.HasPrefix(one, mark)
	})
}

// marksIn returns the marks that an environment holds.
func marksIn(environ string) []string {
	var marks []string
	for kv := range strings.SplitSeq(environ, "\x00") {
		if value, ok := strings.CutPrefix(kv, MarkVariable+"="); ok {
			marks = append(marks, strings.Split(value, "/")...)
		}
	}
	return marks
}
