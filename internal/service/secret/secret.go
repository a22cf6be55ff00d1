// Package secret resolves secrets by name, and keeps them from being shown.
//
// Its invariant: only Reveal returns a secret as text. Formatted, logged or marshalled in any way, a
// Value is [redacted].
package secret

import (
	"fmt"
	"log/slog"
	"unique"
)

// DefaultNamespace is the namespace of a secret that does not name one.
const DefaultNamespace = "default"

// DefaultKey is the key of a secret with a single value.
const DefaultKey = "value"

// redacted replaces every secret that is shown.
const redacted = "[redacted]"

// Ref names one value of a secret (SPEC-TOOLS 5.1). The zero Ref names none.
type Ref struct {
	Namespace, Name, Key string
}

// String returns the shortest form of [namespace/]name[:key].
func (r Ref) String() string {
	s := r.Name
	if r.Namespace != DefaultNamespace {
		s = r.Namespace + "/" + s
	}
	if r.Key != DefaultKey {
		s += ":" + r.Key
	}
	return s
}

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// Value is a secret. Two Values with the same text are equal by ==.
//
// The text is behind a pointer: fmt does not call the methods of a Value in an unexported field of
// another type, but prints its content.
type Value struct{ text unique.Handle[string] }

// NewValue returns a Value for text. For "" it is the zero Value.
func NewValue(text string) Value {
	if text == "" {
		return Value{}
	}
	return Value{unique.Make(text)}
}

// Reveal returns the secret as text.
func (v Value) Reveal() string {
	if v.IsZero() {
		return ""
	}
	return v.text.Value()
}

// IsZero reports whether the secret is empty.
func (v Value) IsZero() bool { return v == Value{} }

// String implements fmt.Stringer.
func (Value) String() string { return redacted }

// Format implements fmt.Formatter, for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) } // a formatter cannot fail

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler, and so JSON as well.
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Secret is a secret that was declared as a resource: its values by their keys.
type Secret struct {
	Namespace, Name string
	Data            map[string]Value
	Source          string // the file of the declaration, for messages
}
