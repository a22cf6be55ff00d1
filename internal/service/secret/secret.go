// Package secret finds secrets by their names and keeps them from being seen.
//
// Its invariant: a secret is text only for as long as somebody calls Reveal.
// Formatted, logged or marshalled in any way, a Value is [redacted].
package secret

import (
	"fmt"
	"log/slog"
	"unique"
)

// DefaultNamespace is where a secret without a namespace is looked for.
const DefaultNamespace = "default"

// DefaultKey is the key of a secret that has but one value.
const DefaultKey = "value"

// redacted stands for every secret that is shown.
const redacted = "[redacted]"

// Ref names one value of a secret (SPEC-TOOLS 5.1). The zero Ref names none.
type Ref struct {
	Namespace, Name, Key string
}

// String gives [namespace/]name[:key] as short as it can be.
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

// Value is a secret. Two Values of the same text are equal by ==.
//
// The text is behind a pointer, since fmt does not ask a Value that is in an
// unexported field of another type how it wants to be shown: it shows what is in it.
type Value struct{ text unique.Handle[string] }

// NewValue returns a Value. That of "" is the zero Value.
func NewValue(text string) Value {
	if text == "" {
		return Value{}
	}
	return Value{unique.Make(text)}
}

// Reveal returns the secret itself.
func (v Value) Reveal() string {
	if v.IsZero() {
		return ""
	}
	return v.text.Value()
}

// IsZero reports whether there is nothing to hide.
func (v Value) IsZero() bool { return v == Value{} }

// String implements fmt.Stringer.
func (Value) String() string { return redacted }

// Format implements fmt.Formatter, for every verb.
func (Value) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) } // a formatter cannot fail

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler, and so JSON as well.
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Secret is one that was declared as a resource: its values by their keys.
type Secret struct {
	Namespace, Name string
	Data            map[string]Value
	Source          string // the file that declares it, for messages
}
