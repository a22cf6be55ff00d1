package trees

import (
	"bytes"
	"iter"
	"strings"
)

// MarkVariable is in the environment of every process that Orla starts, and so of its descendants.
// Its value is INSTANCE.ID. If Orla itself runs in a tool of another Orla, the value begins with the
// outer Orla's value and a slash, so that the outer Orla also finds what the inner one leaves.
const MarkVariable = "ORLA_INSTANCE"

// Marked returns env with the mark, and without any other mark.
func Marked(env []string, outer, mark string) []string {
	if outer != "" {
		mark = outer + "/" + mark
	}
	all := append(make([]string, 0, len(env)+1), MarkVariable+"="+mark)
	for _, kv := range env {
		if !strings.HasPrefix(kv, MarkVariable+"=") {
			all = append(all, kv)
		}
	}
	return all
}

// Bears reports whether an environment, as the kernel gives it, holds a mark.
// One that ends in a dot stands for all of its instance.
func Bears(environ []byte, mark string) bool {
	for one := range marksIn(environ) {
		if string(one) == mark || strings.HasSuffix(mark, ".") && bytes.HasPrefix(one, []byte(mark)) {
			return true
		}
	}
	return false
}

const (
	// mostMarks is how many marks of one environment are looked at. Orla writes one, and
	// those of the Orlas that it runs in.
	mostMarks = 16
	// longestMark is more bytes than a mark of Orla's has.
	longestMark = 200
)

// marksIn returns the marks that an environment holds, the first ones of it. They are
// parts of it.
func marksIn(environ []byte) iter.Seq[[]byte] {
	variable := []byte(MarkVariable + "=")
	return func(yield func([]byte) bool) {
		at := 0
		for left := mostMarks; left > 0; left-- {
			found := bytes.Index(environ[at:], variable)
			if found < 0 {
				return
			}
			begin := at + found
			at = begin + len(variable)
			if begin > 0 && environ[begin-1] != 0 {
				continue // the end of another variable's name, or a value
			}
			value, _, _ := bytes.Cut(environ[at:], []byte{0})
			for mark := range bytes.SplitSeq(value, []byte("/")) {
				if left--; left < 0 || !yield(mark) {
					return
				}
			}
		}
	}
}
