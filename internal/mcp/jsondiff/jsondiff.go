// Package jsondiff finds where two JSON values differ.
package jsondiff

import (
	"maps"
	"reflect"
	"slices"
)

// Absent stands for a value that is not there.
type Absent struct{}

// Compare calls differ with each place where two decoded values differ, members in the order of their keys. at is the way there: a
// string for each member, and an int for each element. It is valid until differ returns.
func Compare(was, is any, differ func(at []any, was, is any)) { compare(nil, was, is, differ) }

func compare(at []any, was, is any, differ func(at []any, was, is any)) {
	x, isObject := was.(map[string]any)
	y, areObjects := is.(map[string]any)
	p, isList := was.([]any)
	q, areLists := is.([]any)
	switch {
	case isObject && areObjects:
		keys := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			compare(append(at, key), member(x, key), member(y, key), differ)
		}
	case isList && areLists:
		for n := range max(len(p), len(q)) {
			compare(append(at, n), element(p, n), element(q, n), differ)
		}
	case !reflect.DeepEqual(was, is):
		differ(at, was, is)
	}
}

func member(of map[string]any, key string) any {
	if value, ok := of[key]; ok {
		return value
	}
	return Absent{}
}

func element(of []any, n int) any {
	if n < len(of) {
		return of[n]
	}
	return Absent{}
}
