package secret

import (
	"errors"
	"fmt"
	"strings"
)

// maxWord is how long a namespace, a name or a key may be: as long as the name
// of a file, which each of them may become.
const maxWord = 253

// CheckWord returns what is wrong with a namespace, a name or a key of a
// secret, or nil. Such a word is safe as the name of a file.
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

// ParseRef reads [namespace/]name[:key] (SPEC-TOOLS 5.1). A secret without a
// namespace is of the given one; "" is DefaultNamespace. The key is DefaultKey
// unless the text has one. The error does not repeat the text: people paste
// secrets where their names belong.
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

// Variable is the name of the environment variable that r is looked for in,
// where its namespace is DefaultNamespace.
func (r Ref) Variable() string { return variableOf(r.full()) }
