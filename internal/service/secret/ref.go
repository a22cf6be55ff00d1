package secret

import (
	"errors"
	"fmt"
	"strings"
)

// maxWord is the longest namespace, name or key: each may become the name of a file.
const maxWord = 253

// CheckWord returns what is wrong with a namespace, a name or a key of a secret, or nil. A valid
// word is safe as the name of a file.
func CheckWord(s string) error {
	if validWord(s) {
		return nil
	}
	return errors.New("must be 1 to 253 of A-Z a-z 0-9 _ . and -")
}

func validWord(s string) bool {
	if s == "" || len(s) > maxWord || s == "." || s == ".." {
		return false
	}
	return !strings.ContainsFunc(s, func(c rune) bool {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
			return false
		}
		return true
	})
}

// ParseRef parses [namespace/]name[:key] (SPEC-TOOLS 5.1). Without a namespace in text, the given
// one is used; "" means DefaultNamespace. Without a key, DefaultKey is used. The error does not
// repeat the text: people paste secrets in place of their names.
func ParseRef(text, namespace string) (Ref, error) {
	ref := Ref{Namespace: namespace, Name: text, Key: DefaultKey}
	if namespace == "" {
		ref.Namespace = DefaultNamespace
	}
	if before, after, ok := strings.Cut(ref.Name, "/"); ok {
		ref.Namespace, ref.Name = before, after
	}
	if before, after, ok := strings.Cut(ref.Name, ":"); ok {
		ref.Name, ref.Key = before, after
	}
	for _, part := range []struct{ what, word string }{{"namespace", ref.Namespace}, {"name", ref.Name}, {"key", ref.Key}} {
		if err := CheckWord(part.word); err != nil {
			return Ref{}, fmt.Errorf("must be [namespace/]name[:key], the name of a secret and not the secret itself; its %s %w", part.what, err)
		}
	}
	return ref, nil
}

// Variable returns the environment variable of r, if its namespace is DefaultNamespace.
func (r Ref) Variable() string { return variableOf(r.full()) }
