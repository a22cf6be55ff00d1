package yamldoc

import (
	"fmt"
	"strings"

	"github.com/orla-project/orla/internal/observe/brief"
)

// Fault is an error in a file, with its position.
type Fault struct {
	File         string
	Line, Column int    // from 1; 0 for a document that has no lines
	Key          string // the path of the key; "" for the file as a whole
	Msg          string

	cause error // the error that the message wraps by %w; nil for none
}

// Unwrap returns the wrapped error.
func (f Fault) Unwrap() error { return f.cause }

// Error returns FILE:LINE:COLUMN: key.path: message.
func (f Fault) Error() string {
	if f.Key == "" {
		return f.Place() + ": " + f.Msg
	}
	return fmt.Sprintf("%s: %s: %s", f.Place(), brief.Cut(f.Key, maxKey), f.Msg)
}

// Place returns FILE:LINE:COLUMN.
func (f Fault) Place() string {
	if f.Line == 0 {
		return f.File
	}
	return fmt.Sprintf("%s:%d:%d", f.File, f.Line, f.Column)
}

// Faults are all the faults of a file, sorted by position. It is never empty.
type Faults []Fault

// Error returns one fault per line.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the faults.
func (f Faults) Unwrap() []error {
	errs := make([]error, len(f))
	for i, fault := range f {
		errs[i] = fault
	}
	return errs
}
