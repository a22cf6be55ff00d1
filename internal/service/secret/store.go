package secret

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/orla-project/orla/internal/call/fault"
)

// environPrefix begins every environment variable that may be a secret. The Store reads no others,
// whatever a resource asks for (SPEC-TOOLS 5.1).
const environPrefix = "ORLOJ_SECRET_"

// Options says where a Store looks.
type Options struct {
	// Dir is the operator's folder of secrets. If empty, there is none.
	Dir string
	// Credentials is the folder of systemd's credentials, from $CREDENTIALS_DIRECTORY. If empty, there
	// is none.
	Credentials string
	// Lookup returns an environment variable. If nil, there are none.
	Lookup func(name string) (string, bool)
	// Cluster returns the values of a Secret of a Kubernetes cluster by their keys; false if there is none. If nil, there is
	// no cluster.
	Cluster func(namespace, name string) (map[string]Value, bool, error)
}

// Store resolves secrets. Except for the Secret resources that Set gave it, it keeps none: it reads
// a secret whenever it is asked for it, so that the next call uses a rotated secret (SPEC-TOOLS
// 5.3). Its methods may be called from any goroutine.
//
// It reads the sources in this order, and the first one that has the key wins:
//
//	Secret resources                 the namespace's
//	Secrets of the cluster           the namespace that Orla serves
//	secrets_dir/NAME                 the key "value" of the namespace default
//	secrets_dir/NAME/KEY             the namespace default
//	secrets_dir/NAMESPACE/NAME/KEY   every other namespace
//	credentials NAME, NAME.KEY       the namespace default: systemd's names have no folders
//	ORLOJ_SECRET_NAME[_KEY]          the namespace default
//
// If a source has the secret but cannot be read, that is an error: a later source must not silently
// replace an earlier one.
type Store struct {
	credentials string
	lookup      func(string) (string, bool)
	cluster     func(namespace, name string) (map[string]Value, bool, error) // nil for none

	mu       sync.Mutex // guards the fields that follow
	dir      string
	declared map[name]map[string]Value // by key
}

type name struct{ namespace, name string }

// New returns a Store without Secret resources.
func New(opts Options) *Store {
	lookup := opts.Lookup
	if lookup == nil {
		lookup = func(string) (string, bool) { return "", false }
	}
	return &Store{credentials: opts.Credentials, lookup: lookup, cluster: opts.Cluster, dir: opts.Dir}
}

// SetDir replaces the folder of secrets; "" for none.
func (s *Store) SetDir(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dir = dir
}

// Set replaces all Secret resources. If two have the same name, the first one is used.
func (s *Store) Set(secrets []Secret) {
	declared := make(map[name]map[string]Value, len(secrets))
	for _, one := range slices.Backward(secrets) {
		declared[name{one.Namespace, one.Name}] = maps.Clone(one.Data)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.declared = declared
}

// Declared returns the values of all Secret resources, sorted.
func (s *Store) Declared() []Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Value
	for _, values := range s.declared {
		all = slices.AppendSeq(all, maps.Values(values))
	}
	slices.SortFunc(all, func(a, b Value) int { return strings.Compare(a.Reveal(), b.Reveal()) })
	return all
}

// Resolve returns the current value of ref, which may be empty. The error is a *fault.Error
// secret_resolution_failed that says which sources were tried, and contains no value.
func (s *Store) Resolve(ref Ref) (Value, error) {
	ref = ref.full()
	return s.resolve(ref, s.given(ref))
}

// given are the sources of a secret at one moment.
type given struct {
	dir        string
	declared   map[string]Value // the values of one Secret resource
	isDeclared bool
}

// given returns the sources for the secret of ref.
func (s *Store) given(ref Ref) given {
	s.mu.Lock()
	defer s.mu.Unlock()
	declared, isDeclared := s.declared[name{ref.Namespace, ref.Name}]
	return given{s.dir, declared, isDeclared}
}

func (s *Store) resolve(ref Ref, from given) (Value, error) {
	for _, word := range []string{ref.Namespace, ref.Name, ref.Key} {
		if !validWord(word) { // it must not lead out of a folder
			return Value{}, fault.New(fault.SecretResolutionFailed, "a secret cannot be called that")
		}
	}
	if value, found := from.declared[ref.Key]; found {
		return value, nil
	}

	var looked []string
	if from.isDeclared {
		looked = append(looked, "its Secret resource (which has no such key)")
	} else {
		looked = append(looked, "the Secret resources")
	}
	if s.cluster != nil {
		values, found, err := s.cluster(ref.Namespace, ref.Name)
		if err != nil {
			return Value{}, Failed(ref, "%v", err)
		}
		if value, has := values[ref.Key]; has {
			return value, nil
		}
		if found {
			looked = append(looked, "the Secret of the cluster (which has no such key)")
		} else {
			looked = append(looked, "the Secrets of the cluster")
		}
	}
	for _, at := range candidates(ref, from.dir, s.credentials) {
		value, err := at.read()
		switch {
		case err != nil:
			return Value{}, Failed(ref, "%v", err)
		case value != nil:
			return *value, nil
		}
		looked = append(looked, at.String())
	}
	if ref.Namespace == DefaultNamespace {
		variable := variableOf(ref)
		if text, ok := s.lookup(variable); ok {
			return NewValue(text), nil
		}
		looked = append(looked, "the environment variable "+variable)
	}
	return Value{}, Failed(ref, "it is not there; looked for it in %s; %s", list(looked), remedy(ref, from, s.cluster != nil))
}

// remedy says how to give Orla a secret that it has not found.
func remedy(ref Ref, from given, inCluster bool) string {
	if from.isDeclared {
		return fmt.Sprintf("add the key %s to that resource", ref.Key)
	}
	what := "resource of kind Secret"
	if inCluster {
		what = "Secret of the cluster"
	}
	text := fmt.Sprintf("add a %s with the namespace %s, the name %s and the key %s", what, ref.Namespace, ref.Name, ref.Key)
	if from.dir == "" {
		text += ", or set secrets_dir"
	}
	return text
}

// Keys returns several values of one secret, all from the same moment. The key of ref is ignored.
// The error is that of the first key that cannot be resolved.
func (s *Store) Keys(ref Ref, keys ...string) (map[string]Value, error) {
	values, err := s.keys(ref, keys)
	// Files cannot be locked: if two reads give the same values, these belong together.
	for range maxReads - 1 {
		if err != nil {
			return nil, err
		}
		before := values
		if values, err = s.keys(ref, keys); maps.Equal(values, before) {
			break
		}
	}
	return values, err
}

// maxReads bounds how many times the files of a secret are read if they keep changing.
const maxReads = 5

func (s *Store) keys(ref Ref, keys []string) (map[string]Value, error) {
	from := s.given(ref.full())
	values := make(map[string]Value, len(keys))
	for _, key := range keys {
		ref.Key = key
		value, err := s.resolve(ref.full(), from)
		if err != nil {
			return nil, err
		}
		values[key] = value
	}
	return values, nil
}

// full sets the parts of a Ref that are empty to their defaults.
func (r Ref) full() Ref {
	r.Namespace = cmp.Or(r.Namespace, DefaultNamespace)
	r.Key = cmp.Or(r.Key, DefaultKey)
	return r
}

// variableOf returns the environment variable of a secret.
func variableOf(ref Ref) string {
	text := ref.Name
	if ref.Key != DefaultKey {
		text += "_" + ref.Key
	}
	return environPrefix + strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return r - 'a' + 'A'
		case 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, text)
}

// Failed is the error for a secret that cannot be resolved. The call that needs it was not sent.
func Failed(ref Ref, format string, args ...any) *fault.Error {
	f := fault.New(fault.SecretResolutionFailed, "secret %q: "+format, append([]any{ref.String()}, args...)...)
	f.Unsent = true
	return f
}

// list joins several things for a sentence.
func list(items []string) string {
	if len(items) == 1 {
		return items[0]
	}
	last := len(items) - 1
	return strings.Join(items[:last], ", ") + " and " + items[last]
}
