package claim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// MaxKept bounds the claims that are kept, in bytes.
const MaxKept = 16 << 20

// Within returns as many claims as take most bytes together. Those who were first share that: who has more than the others
// loses what is too much, and nobody else does (SPEC N2). It may return claims itself.
func Within(claims map[Claim][]string, most int) map[Claim][]string {
	sizes, total := map[string]int{}, 0
	for k, line := range claims {
		sizes[line[0]] += size(k, line)
		total += size(k, line)
	}
	if total <= most {
		return claims
	}
	share := shareOf(slices.Sorted(maps.Values(sizes)), most)
	kept := make(map[Claim][]string, len(claims))
	used := map[string]int{}
	for _, k := range slices.SortedFunc(maps.Keys(claims), func(a, b Claim) int { return compare(claims, a, b) }) {
		line := claims[k]
		if of, n := line[0], size(k, line); used[of]+n <= share {
			kept[k] = line
			used[of] += n
		}
	}
	return kept
}

// compare orders claims so that a provider keeps the names of manifests, which roles mean, before others.
func compare(claims map[Claim][]string, a, b Claim) int {
	rank := func(k Claim) int {
		if k.Sort == Provider || k.IsManifest(claims[k]) {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(string(a.Sort), string(b.Sort)), strings.Compare(a.Key, b.Key))
}

// shareOf returns how much each may have at most, so that all together have no more than most. sizes are what they want, the
// smallest first.
func shareOf(sizes []int, most int) int {
	for i, n := range sizes {
		if share := most / (len(sizes) - i); n > share {
			return share
		}
		most -= n
	}
	return most
}

// size is about how many bytes a claim takes, and no less than it takes in the file.
func size(k Claim, line []string) int {
	const (
		each    = 64 // of a provider, in memory
		escaped = 6  // of what JSON cannot have as it is
	)
	n := each
	for _, r := range k.Key {
		switch {
		case r < ' ', r == '"', r == '\\', r == utf8.RuneError, r == '\u2028', r == '\u2029':
			n += escaped
		default:
			n += utf8.RuneLen(r)
		}
	}
	for _, name := range line {
		n += max(each, len(name)+len(`"",`))
	}
	return n
}
