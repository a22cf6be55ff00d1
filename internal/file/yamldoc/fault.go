package yamldoc

import (
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/observe/brief"
)

// Fault is one thing that is wrong in a file, and where.
type Fault struct {
	File         string
	Line, Column int    // from 1
	Key          string // the path of the key; "" for the file as a whole
	Msg          string

	cause error // what the message wrapped by %w; nil for nothing
}

// Unwrap returns what the message wrapped.
func (f Fault) Unwrap() error { return f.cause }

// Error gives FILE:LINE:COLUMN: key.path: what is wrong.
func (f Fault) Error() string {
	if f.Key == "" {
		return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s: %s", f.File, f.Line, f.Column, brief.Cut(f.Key, maxKey), f.Msg)
}

// Faults are all the faults of a file, sorted by place. It is never empty.
type Faults []Fault

// Error gives one fault a line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults one by one.
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i, fault := range f {
		errs[i] = fault
	}
	return errs
}
