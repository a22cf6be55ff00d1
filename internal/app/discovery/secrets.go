package discovery

import (
	"errors"
	"fmt"
	"os"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/call/fault"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
)

// WarnOfSecrets warns of each tool whose calls need a secret that is not there (SPEC-TOOLS 5.1). Whether a cluster
// has it, only a running Orla knows.
func WarnOfSecrets(found *manifest.Result, cfg *config.Loaded) {
	if cfg.Kubernetes {
		return
	}
	secrets := secret.New(secret.Options{Dir: cfg.SecretsDir, Credentials: os.Getenv("CREDENTIALS_DIRECTORY"), Lookup: os.LookupEnv})
	secrets.Set(found.Secrets)
	for _, t := range found.Tools {
		var errs []error
		for _, wanted := range t.Run.SecretEnv {
			if _, err := secrets.Resolve(wanted.Secret); err != nil {
				errs = append(errs, fmt.Errorf("the variable %s: %s", wanted.Name, fault.From(err).Reason))
			}
		}
		switch auth := authOf(t); auth.Profile {
		case manifest.AuthOAuth2, manifest.AuthLogin: // of several values, or of a login
		case manifest.AuthBearer, manifest.AuthAPIKey, manifest.AuthBasic:
			if _, err := secrets.Resolve(auth.Secret); err != nil {
				errs = append(errs, fmt.Errorf("auth: %s", fault.From(err).Reason))
			}
		}
		if len(errs) > 0 {
			found.Problems = append(found.Problems, manifest.Problem{Path: t.Source, Tool: t.Name, Severity: manifest.Warning, Err: errors.Join(errs...)})
		}
	}
}

// authOf returns how the calls of a tool are authenticated.
func authOf(t manifest.Tool) manifest.Auth {
	switch {
	case t.Resource != nil:
		return t.Resource.Auth
	case t.Runtime.Remote != nil:
		return t.Runtime.Remote.Auth
	}
	return manifest.Auth{}
}
