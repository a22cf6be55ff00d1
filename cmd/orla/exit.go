package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/orla-project/orla/internal/terminal"
)

// exitCode is how the program ends. The numbers are documented and stable (SPEC J3).
type exitCode int

const (
	exitOK         exitCode = 0
	exitFailed     exitCode = 1 // it was tried and did not work
	exitUsage      exitCode = 2 // the command line is off
	exitNotRunning exitCode = 3 // there is no Orla to talk to
	exitInvalid    exitCode = 4 // a manifest or a configuration has faults
)

// failure is an error that knows how the program ends and what may help.
type failure struct {
	code exitCode
	err  error
	hint string // "" for none
}

func (f *failure) Error() string { return f.err.Error() }

func (f *failure) Unwrap() error { return f.err }

// usageHint is what helps when the command line is off.
const usageHint = "orla --help lists commands and flags"

// report prints err as one line, with a hint where there is one.
func report(err error, w io.Writer) exitCode {
	if err == nil {
		return exitOK
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		// What is no failure comes from cobra, which reads the command line; see endWell.
		f = &failure{code: exitUsage, err: err, hint: usageHint}
	}
	if text := f.err.Error(); text != "" {
		for line := range strings.Lines(text) {
			fmt.Fprintf(w, "orla: %s\n", terminal.Printable(strings.TrimRight(line, "\n")))
		}
	}
	if f.hint != "" {
		fmt.Fprintf(w, "orla: hint: %s\n", f.hint)
	}
	return f.code
}
