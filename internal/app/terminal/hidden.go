package terminal

import (
	"context"
	"os"
	"strings"

	"golang.org/x/term"
)

// Hidden reads a line from a terminal that does not show it. It reports false if there is none, or if ctx ends first: then the terminal
// shows again what is typed, and the next line is lost.
func Hidden(ctx context.Context, f *os.File) (line string, ok bool) {
	fd := int(f.Fd())
	before, err := term.GetState(fd)
	if err != nil {
		return "", false
	}
	said := make(chan string, 1)
	go func() { // it ends with the line, or with the program
		text, _ := term.ReadPassword(fd) // what cannot be read is nothing
		said <- strings.TrimSpace(string(text))
	}()
	select {
	case line := <-said:
		return line, line != ""
	case <-ctx.Done():
		_ = term.Restore(fd, before) // there is no other way to
		return "", false
	}
}
