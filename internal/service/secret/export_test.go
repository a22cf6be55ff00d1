package secret

import "math"

// Find searches a text for others, the longest first, and returns where they stand.
func Find(texts [][]byte, text []byte) (at [][2]int) {
	found, _ := newSearch(texts).find(text, math.MaxInt)
	for _, s := range found {
		at = append(at, [2]int{s.from, s.to})
	}
	return at
}

// FormsOf returns the texts by which a value is known.
func FormsOf(text string) []string { return formsOf(text, false) }
