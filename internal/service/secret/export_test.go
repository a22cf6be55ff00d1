package secret

// Find searches a text for others, the longest first, and returns where they stand.
func Find(texts [][]byte, text []byte) (at [][2]int) {
	for _, s := range newSearch(texts).find(text) {
		at = append(at, [2]int{s.from, s.to})
	}
	return at
}

// FormsOf returns the texts by which a value is known.
func FormsOf(text string) []string { return formsOf(text) }
