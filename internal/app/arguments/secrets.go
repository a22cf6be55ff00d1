package arguments

import (
	"fmt"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// maxSecrets bounds the values that are looked for, in bytes: their forms take about twenty times as much.
const maxSecrets = 256 << 10

// Secrets returns the values that are secrets of a configuration and of its tools, as they are now: tokens of callers, other
// files of the configuration with secrets, Secret resources, and what manifests refer to. A Secret that is not there has no value.
// The error says that a file cannot be read, or that there are too many to look for.
func Secrets(cfg *config.Loaded, tools []supervisor.Served, store *secret.Store) ([]secret.Value, error) {
	all := &found{seen: map[secret.Value]bool{}}
	for _, path := range cfg.SecretFiles() {
		text, err := config.ReadSmall(path)
		if err != nil {
			return nil, fmt.Errorf("a secret cannot be hidden: %w", err)
		}
		all.addFile(strings.TrimSpace(string(text)))
	}
	for _, value := range store.Declared() {
		all.add(value.Reveal())
	}
	for i := range tools {
		for _, one := range refsOf(&tools[i].Tool) {
			value, err := store.Resolve(one.Ref)
			if err != nil {
				continue
			}
			all.add(value.Reveal())
			if _, password, ok := strings.Cut(value.Reveal(), ":"); ok && one.pair {
				all.add(password)
			}
		}
	}
	if all.size > maxSecrets {
		return nil, fmt.Errorf("the secrets of this Orla have more than %d KiB, which are too many to look for in arguments", maxSecrets>>10)
	}
	return all.values, nil
}

// found are values, each once.
type found struct {
	values []secret.Value
	seen   map[secret.Value]bool
	size   int
}

func (f *found) add(text string) {
	v := secret.NewValue(text)
	if v.IsZero() || f.seen[v] {
		return
	}
	f.seen[v] = true
	f.values = append(f.values, v)
	f.size += len(text)
}

// addFile adds the secret that a file holds, or those of its lines NAME: VALUE, where VALUE may be SCHEME SECRET.
func (f *found) addFile(text string) {
	f.add(text)
	for line := range strings.Lines(text) {
		if _, value, ok := strings.Cut(line, ": "); ok {
			f.add(strings.TrimSpace(value))
			if _, credentials, ok := strings.Cut(strings.TrimSpace(value), " "); ok {
				f.add(strings.TrimSpace(credentials))
			}
		}
	}
}

// reference is a secret that a manifest refers to.
type reference struct {
	secret.Ref
	pair bool // it may be USER:PASSWORD
}

func refsOf(t *manifest.Tool) (refs []reference) {
	for _, v := range t.Run.SecretEnv {
		refs = append(refs, reference{v.Secret, false})
	}
	refs = append(refs, reference{t.Isolation.PullSecret, true})
	if r := t.Resource; r != nil {
		refs = append(refs, authRefs(r.Auth)...)
		if r.WASM != nil {
			refs = append(refs, reference{r.WASM.PullSecret, true})
		}
	}
	if remote := t.Runtime.Remote; remote != nil {
		refs = append(refs, authRefs(remote.Auth)...)
	}
	return slices.DeleteFunc(refs, func(r reference) bool { return r.IsZero() })
}

func authRefs(a manifest.Auth) []reference {
	if a.Profile != manifest.AuthOAuth2 || a.Secret.IsZero() {
		return []reference{{a.Secret, a.Profile == manifest.AuthBasic}}
	}
	id, key := a.Secret, a.Secret
	id.Key, key.Key = "client_id", "client_secret"
	return []reference{{id, false}, {key, false}}
}
