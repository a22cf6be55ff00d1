package discovery

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/terminal"
	"github.com/orla-project/orla/manifest"
)

// Interpreter is the program that runs a tool, where the tool is none itself.
func Interpreter(t manifest.Tool) string {
	switch {
	case t.Kind == manifest.Cli:
		return filepath.Base(t.Resource.CLI.Command)
	case t.Runtime.Generated && t.Path != "":
		return filepath.Base(t.Path)
	}
	return t.Interpreter.Name
}

// PrintProblems prints what is wrong with tools, a line for each message.
func PrintProblems(w io.Writer, problems []manifest.Problem) {
	PrintReported(w, Problems(problems))
}

// PrintReported prints problems, a line for each message.
func PrintReported(w io.Writer, problems []control.Problem) {
	for _, p := range problems {
		for _, line := range p.Messages {
			if p.Path != "" && !strings.HasPrefix(line, p.Path) {
				line = p.Path + ": " + line
			}
			fmt.Fprintf(w, "orla: %s: %s\n", p.Severity, terminal.Printable(line))
		}
	}
}

// Messages returns the messages of a problem, one for each fault.
func Messages(p manifest.Problem) []string {
	var list []string
	var flatten func(error)
	flatten = func(err error) {
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, one := range joined.Unwrap() {
				flatten(one)
			}
			return
		}
		list = append(list, err.Error())
	}
	flatten(p.Err)
	return list
}

// Problems converts problems to those of the control API.
func Problems(problems []manifest.Problem) []control.Problem {
	list := make([]control.Problem, 0, len(problems))
	for _, p := range problems {
		list = append(list, control.Problem{Severity: string(p.Severity), Path: p.Path, Tool: p.Tool, Messages: Messages(p)})
	}
	return list
}

// Isolation is where a tool's processes live, for people; "" where Orla does.
func Isolation(t manifest.Tool) string {
	i := t.Isolation
	switch {
	case !i.Isolated():
		return ""
	case i.Mode == manifest.IsolationSandboxed && i.Terms.Backend != "":
		return string(i.Mode) + " (" + string(i.Terms.Backend) + ")"
	}
	return string(i.Mode)
}
