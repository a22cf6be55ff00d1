// Package versions compares versions of programs with what a specification allows.
package versions

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Satisfies reports whether a version of a program is one that a specification such as ">=3.8,<4" allows. A version or
// a specification that it does not understand is allowed.
func Satisfies(version, specification string) bool {
	ok, known := Compare(version, specification)
	return ok || !known
}

// Compare reports whether a version of Python is one that requires-python allows. known is false if
// the specification is not one of those that it understands.
func Compare(version, specification string) (ok, known bool) {
	have, ok := numbers(version)
	if !ok {
		return false, false
	}
	for clause := range strings.SplitSeq(specification, ",") {
		clause = strings.TrimSpace(clause)
		end := strings.IndexFunc(clause, func(r rune) bool { return !strings.ContainsRune("<>=!~", r) })
		if end <= 0 {
			return false, false
		}
		operator, text := clause[:end], strings.TrimSpace(clause[end:])
		text, prefix := strings.CutSuffix(text, ".*")
		want, ok := numbers(text)
		if !ok {
			return false, false
		}
		order := slices.Compare(padded(have), padded(want))
		begins := len(have) >= len(want) && slices.Equal(have[:len(want)], want)
		equal := order == 0 || prefix && begins
		switch operator {
		case ">=":
			ok = order >= 0
		case ">":
			ok = order > 0
		case "<=":
			ok = order <= 0
		case "<":
			ok = order < 0
		case "==":
			ok = equal
		case "!=":
			ok = !equal
		case "~=":
			ok = order >= 0 && len(want) > 1 && slices.Equal(have[:min(len(have), len(want)-1)], want[:len(want)-1])
		default:
			return false, false
		}
		if !ok {
			return false, true
		}
	}
	return true, true
}

// numbers reads a version that consists of numbers.
func numbers(version string) (list []int, ok bool) {
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, false
		}
		list = append(list, n)
	}
	return list, true
}

// padded is a version with at least three numbers.
func padded(version []int) []int {
	for len(version) < 3 {
		version = append(slices.Clone(version), 0)
	}
	return version
}

var pythonClause = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(~=|==|!=|<=|>=|<|>)[ \t]*([0-9]+(?:\.[0-9]+)*(?:\.\*)?)$`)
})

// OfPython returns a requires-python of a package from elsewhere in the one form that is handed on: to uv anything else may be a path.
func OfPython(text string) (string, error) {
	var list []string
	for part := range strings.SplitSeq(text, ",") {
		m := pythonClause().FindStringSubmatch(strings.Trim(part, " \t"))
		if m == nil || strings.HasSuffix(m[2], "*") && m[1] != "==" && m[1] != "!=" {
			return "", fmt.Errorf("requires-python is %.100q, which is not a list of versions such as \">=3.9,<4\"", text)
		}
		list = append(list, m[1]+m[2])
	}
	return strings.Join(list, ","), nil
}
