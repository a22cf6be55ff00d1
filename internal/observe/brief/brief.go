// Package brief shortens what Orla repeats of the words of others in its errors and its log, and bounds how
// often it logs a thing.
package brief

import "strings"

// Cut returns a text, cut to about most bytes.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
