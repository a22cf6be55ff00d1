package terminal

// The colours of texts.
const (
	Red        = "\x1b[31m"
	Green      = "\x1b[32m"
	Yellow     = "\x1b[33m"
	Faint      = "\x1b[2m"
	uncoloured = "\x1b[0m"
)

// Paint returns a text in a colour, if colours are used. The colour "" is none.
func Paint(colours bool, colour, text string) string {
	if !colours || colour == "" {
		return text
	}
	return colour + text + uncoloured
}
