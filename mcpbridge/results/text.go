package results

import (
	"unicode/utf8"
)

// runeStart returns where the rune that text[i] belongs to begins.
func runeStart(text string, i int) int {
	for i < len(text) && i > 0 && !utf8.RuneStart(text[i]) {
		i--
	}
	return i
}
