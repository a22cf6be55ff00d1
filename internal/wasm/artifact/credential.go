package artifact

import (
	"context"
	"strings"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"

	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
)

// dockerConfig is the key of pull secrets in Kubernetes.
const dockerConfig = ".dockerconfigjson"

// credential returns the credentials for host from the pull secret of a module there. The secret is
// one of:
//
//   - the configuration of docker or podman, {"auths": {HOST: …}}, of which the
//     entry for host is used. In Kubernetes it has the key .dockerconfigjson, which
//     is used if the secret has no key "value".
//   - USER:PASSWORD
//   - a token that is sent to the registry unchanged.
func (s *Store) credential(ctx context.Context, pull secret.Ref, host string) (auth.Credential, error) {
	if pull.IsZero() {
		return auth.EmptyCredential, nil
	}
	if s.opts.Secrets == nil {
		return auth.EmptyCredential, fault.New(fault.SecretResolutionFailed, "secret %q: there are none here", pull)
	}
	value, err := s.opts.Secrets(pull)
	if err != nil && (pull.Key == "" || pull.Key == secret.DefaultKey) {
		inKubernetes := pull
		inKubernetes.Key = dockerConfig
		if other, otherErr := s.opts.Secrets(inKubernetes); otherErr == nil {
			value, err = other, nil
		}
	}
	if err != nil {
		return auth.EmptyCredential, err
	}
	return parseCredential(ctx, pull, strings.TrimSpace(value.Reveal()), host)
}

func parseCredential(ctx context.Context, pull secret.Ref, text, host string) (auth.Credential, error) {
	unfit := func(why string) (auth.Credential, error) {
		return auth.EmptyCredential, fault.New(fault.SecretResolutionFailed, "pull secret %q: %s", pull, why)
	}
	if strings.HasPrefix(text, "{") {
		store, err := credentials.NewMemoryStoreFromDockerConfig([]byte(text))
		if err != nil { // err may quote the secret
			return unfit("it is not a configuration of docker: want {\"auths\": {HOST: {\"auth\": …}}}")
		}
		for _, name := range names(host) {
			found, err := store.Get(ctx, name)
			if err == nil && found != auth.EmptyCredential {
				return found, nil
			}
		}
		return unfit("it has no credentials for " + host)
	}
	user, password, ok := strings.Cut(text, ":")
	switch {
	case text == "":
		return unfit("it is empty")
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return unfit("it has control characters")
	case !ok:
		return auth.Credential{AccessToken: text}, nil
	case user == "" || password == "":
		return unfit("want USER:PASSWORD")
	}
	return auth.Credential{Username: user, Password: password}, nil
}

// names returns the names of a registry in configurations.
func names(host string) []string {
	switch host {
	case "docker.io", "index.docker.io", "registry-1.docker.io":
		return []string{"index.docker.io", "docker.io", "registry-1.docker.io"}
	}
	return []string{host}
}
