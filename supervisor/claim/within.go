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
	all := make([]sized, 0, len(claims))
	sizes, total := map[string]int{}, 0
	for k, line := range claims {
		n := size(k, line)
		all = append(all, sized{k, line, n})
		sizes[line[0]] += n
		total += n
	}
	if total <= most {
		return claims
	}
	share := shareOf(slices.Sorted(maps.Values(sizes)), most)
	kept := make(map[Claim][]string, len(claims))
	var names, others []sized // of those who have too much
	for _, c := range all {
		switch {
		case sizes[c.line[0]] <= share:
			kept[c.Claim] = c.line
		case c.Sort == Provider || c.IsManifest(c.line):
			names = append(names, c)
		default:
			others = append(others, c)
		}
	}
	used := map[string]int{}
	for _, list := range [][]sized{names, others} { // roles mean the names of manifests
		slices.SortFunc(list, func(a, b sized) int { // the same are kept each time
			return cmp.Or(strings.Compare(string(a.Sort), string(b.Sort)), strings.Compare(a.Key, b.Key))
		})
		for _, c := range list {
			if of := c.line[0]; used[of]+c.size <= share {
				kept[c.Claim] = c.line
				used[of] += c.size
			}
		}
	}
	return kept
}

// sized is a claim with who has it, and its size.
type sized struct {
	Claim
	line []string
	size int
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
