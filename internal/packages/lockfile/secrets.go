package lockfile

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/orla-project/orla/internal/packages/permission"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/manifest/keys"
)

// SecretName is the name of the Secret of a package: only a package of the same name from the same source
// has the same one (SPEC M7). A tool of the user's own has its name alone.
func (s Source) SecretName(name string) string {
	identity := []string{name, string(s.Kind), s.URL}
	if s.Server != "" { // as Same has it
		identity = []string{name, "", s.URL, s.Server}
	}
	sum := sha256.New()
	for _, part := range identity {
		fmt.Fprintf(sum, "%d:%s", len(part), part)
	}
	return name + "-" + hex.EncodeToString(sum.Sum(nil)[:8])
}

// secretsOf returns where t names secrets. Those are copies: other manifests may share what t has.
func secretsOf(t *manifest.Tool) (refs []*secret.Ref) {
	t.Run.SecretEnv = slices.Clone(t.Run.SecretEnv)
	for i := range t.Run.SecretEnv {
		refs = append(refs, &t.Run.SecretEnv[i].Secret)
	}
	if t.Runtime.Remote != nil {
		remote := *t.Runtime.Remote
		t.Runtime.Remote = &remote
		if !remote.Auth.Secret.IsZero() {
			refs = append(refs, &remote.Auth.Secret)
		}
	}
	if t.Resource != nil && !t.Resource.Auth.Secret.IsZero() {
		resource := *t.Resource
		t.Resource = &resource
		refs = append(refs, &resource.Auth.Secret)
	}
	return refs
}

// SecretsOf returns the permissions for the secrets that the tool of a package asks for. The error says that it names another
// Secret than its own.
func SecretsOf(t manifest.Tool) (list []permission.Permission, err error) {
	for _, ref := range secretsOf(&t) {
		if ref.Namespace != keys.PackageSecrets || ref.Name != t.Name {
			return nil, fmt.Errorf("it asks for the secret %s, and a package has only those of packages/%s", ref, t.Name)
		}
		list = append(list, permission.Permission{Kind: permission.Secret, Target: ref.Key})
	}
	return permission.Sorted(list), nil
}

// BindSecrets makes the tool of an installed package use the Secret of the package in place of that of its name.
func (p *Package) BindSecrets(t *manifest.Tool) {
	for _, ref := range secretsOf(t) {
		ref.Name = p.Source.SecretName(p.Name)
	}
}
