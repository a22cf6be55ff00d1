// Command orla finds tools and serves them to MCP clients.
//
// Everything is joined here: flags, environment and file become settings, and
// settings become the parts of the program (wire.go) and their lives (serve.go).
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/orla-project/orla/internal/launch"
	"github.com/orla-project/orla/internal/launch/container"
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

// guardCommand is the hidden command that a Local starts to outlive it.
const guardCommand = "__guard"

func main() {
	os.Exit(int(run(os.Args[1:], stdio{os.Stdin, os.Stdout, os.Stderr})))
}

// guard runs as the process that outlives Orla, and returns its exit code.
func guard(groups string) int {
	debug.FreeOSMemory() // it may live long, and needs next to nothing of what is here
	return launch.RunGuard(groups)
}

// stdio are the program's streams.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

// run is the program without its process. It returns how it ended.
func run(args []string, std stdio) exitCode {
	if len(args) == 2 && args[0] == guardCommand {
		return exitCode(guard(args[1]))
	}
	if len(args) > 0 && args[0] == probeCommand {
		return exitCode(container.Probe(args[1:], std.out))
	}
	keepDescriptors()
	root := newRoot(std)
	root.SetArgs(args)
	return report(root.ExecuteContext(context.Background()), std.err)
}

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
			fmt.Fprintf(w, "orla: %s\n", printable(strings.TrimRight(line, "\n")))
		}
	}
	if f.hint != "" {
		fmt.Fprintf(w, "orla: hint: %s\n", f.hint)
	}
	return f.code
}
