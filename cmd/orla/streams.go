package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// stdio are the program's streams.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// colourful reports whether w is a terminal whose user did not refuse colours.
func colourful(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("NO_COLOR") == "" && term.IsTerminal(int(f.Fd()))
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// tableWidth is how wide a table is where there is no terminal.
const tableWidth = 100

// widthOf is how many characters a line has room for.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return tableWidth
}
