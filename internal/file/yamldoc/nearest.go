package yamldoc

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Nearest returns the known word that the given one is most likely a misspelling of, or "".
func Nearest(given string, known []string) string {
	best, bestCost := "", 3
	for _, k := range known {
		cost := distance(given, k)
		switch {
		case squash(given) == squash(k):
			cost = 0
		case 2*cost > min(len(given), len(k)):
			continue // more than half of the word would change
		}
		if cost < bestCost {
			best, bestCost = k, cost
		}
	}
	return best
}

// squash makes read_only_hint, read-only-hint and readOnlyHint equal.
func squash(s string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(s))
}

// distance is the smallest number of insertions, deletions, replacements and swaps of neighbours
// that turn a into b, or a large number if that is clearly more than Nearest accepts.
func distance(a, b string) int {
	if len(a)-len(b) > 2 || len(b)-len(a) > 2 {
		return 99
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// suggest says for the end of a message which key was probably meant by an unknown one, or where in the document it
// belongs; "" if nothing is similar. near is the field with a similar name, or "". top are the document's own fields.
func suggest(name string, fields, top []field) (text, near string) {
	known := make([]string, len(fields))
	for i, f := range fields {
		known[i] = f.name
	}
	switch near := Nearest(name, known); {
	case near != "":
		return fmt.Sprintf("; did you mean %q?", near), near
	case below(name, fields) != "":
		return below(name, fields), ""
	case slices.ContainsFunc(top, func(f field) bool { return f.name == name }):
		return "; it belongs at the top level", ""
	}
	return below(name, top), ""
}

// below says which of some fields has the unknown key below it, for the end of a message, or "".
func below(name string, fields []field) string {
	for _, f := range fields {
		t := f.typ
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			continue
		}
		for _, below := range fieldsOf(t) {
			switch {
			case below.name == name:
				return fmt.Sprintf("; it belongs in %q", f.name)
			case squash(below.name) == squash(name):
				return fmt.Sprintf("; it belongs in %q, as %q", f.name, below.name)
			}
		}
	}
	return ""
}
