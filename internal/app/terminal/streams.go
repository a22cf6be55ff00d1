// Package terminal writes text for people: it escapes what a terminal would obey,
// knows how wide and how colourful a terminal is, and shortens numbers for tables.
package terminal

import (
	"io"
	"os"
	"slices"

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

// Gone returns what reports whether a terminal is gone that std.In or std.Err was; nil if neither was one.
func (std Streams) Gone() func() bool {
	var terminals []int
	for _, stream := range []any{std.In, std.Err} {
		withDescriptor(stream, func(fd uintptr) {
			if term.IsTerminal(int(fd)) {
				terminals = append(terminals, int(fd))
			}
		})
	}
	if len(terminals) == 0 {
		return nil
	}
	return func() bool {
		return slices.ContainsFunc(terminals, func(fd int) bool { return !term.IsTerminal(fd) })
	}
}

// Raw makes a terminal pass on each key at once, without showing it, until restore is called. It reports false
// if f is not a terminal.
func Raw(f *os.File) (restore func() error, ok bool) {
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, false
	}
	return func() error { return term.Restore(int(f.Fd()), before) }, true
}

// Size is how many characters a terminal has in a line, and how many lines; ok is false if f is not a terminal
// that says so.
func Size(f *os.File) (width, height int, ok bool) {
	width, height, err := term.GetSize(int(f.Fd()))
	return width, height, err == nil && width > 0 && height > 0
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
