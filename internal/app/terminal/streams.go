// Package terminal writes text for people: it escapes what a terminal would obey,
// knows how wide and how colourful a terminal is, and shortens numbers for tables.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Streams are stdin, stdout and stderr of the program.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Colourful reports whether w is a terminal whose user did not refuse colours.
func Colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}

// IsTerminal reports whether w is a terminal, or another device of characters.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// TableWidth is how wide a table is where there is no terminal.
const TableWidth = 100

// Width is how many characters a line has room for.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return TableWidth
}
