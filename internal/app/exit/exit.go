// Package exit has the ways in which the program ends: codes that are documented, and
// errors that know theirs.
package exit

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/orla-project/orla/internal/app/terminal"
)

// Code is how the program ends. The numbers are documented and stable (SPEC J3).
type Code int

// The exit codes.
const (
	OK         Code = 0
	Failed     Code = 1 // it was tried and did not work
	Usage      Code = 2 // the command line is off
	NotRunning Code = 3 // there is no Orla to talk to
	Invalid    Code = 4 // a manifest or a configuration has faults
)

// Error is an error that knows how the program ends and what may help.
type Error struct {
	Code Code
	Err  error
	Hint string // "" for none
}

func (f *Error) Error() string { return f.Err.Error() }

func (f *Error) Unwrap() error { return f.Err }

// UsageHint is what helps when the command line is off.
const UsageHint = "orla --help lists commands and flags"

// Report prints err as one line, with a hint where there is one.
func Report(err error, w io.Writer) Code {
	if err == nil {
		return OK
	}
	f, ok := errors.AsType[*Error](err)
	if !ok {
		// Any other error comes from cobra, which reads the command line; see cli.endWell.
		f = &Error{Code: Usage, Err: err, Hint: UsageHint}
	}
	if text := f.Err.Error(); text != "" {
		for line := range strings.Lines(text) {
			fmt.Fprintf(w, "orla: %s\n", terminal.Printable(strings.TrimRight(line, "\n")))
		}
	}
	if f.Hint != "" {
		fmt.Fprintf(w, "orla: hint: %s\n", f.Hint)
	}
	return f.Code
}
