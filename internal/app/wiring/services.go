package wiring

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/cluster/resources"
	"github.com/orla-project/orla/internal/kind/grpc"
	"github.com/orla-project/orla/internal/kind/post"
	"github.com/orla-project/orla/internal/kind/webhook"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/internal/service/oauth"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/internal/service/secret"
	"github.com/orla-project/orla/manifest"
	"github.com/orla-project/orla/supervisor"
)

// Services is what tools that are services share: secrets, the HTTP client, and access tokens.
type Services struct {
	secrets *secret.Store
	client  *outbound.Client
	issuers *outbound.Client // asks the issuer of callers' tokens, and tells the webhook of approvals
	tokens  *auth.Tokens
	logins  *login.Store // of remote MCP servers

	declared []secret.Secret // owned by Declare
	// Cluster has the custom resources; nil for none.
	Cluster *resources.Resources
	// Callbacks take the answers that services push. On stdio there is no way to push one.
	Callbacks *webhook.Callbacks
}

func newServices(cfg *config.Loaded, cluster *resources.Resources, log *slog.Logger) *Services {
	client := outbound.New(outbound.Options{Private: outbound.Private(cfg.AllowPrivateEndpoints)})
	return &Services{
		secrets: secret.New(secret.Options{
			Dir: cfg.SecretsDir, Credentials: os.Getenv("CREDENTIALS_DIRECTORY"), Lookup: os.LookupEnv, Cluster: secretsOf(cluster),
		}),
		client:    client,
		issuers:   newIssuers(),
		tokens:    auth.NewTokens(client),
		logins:    login.NewStore(loginsDir(cfg), client, log),
		Callbacks: webhook.NewCallbacks(),
		Cluster:   cluster,
	}
}

// newIssuers returns the client for the issuer of callers' tokens. The operator has named it, so it may
// be in a private network, whatever the tools may reach.
func newIssuers() *outbound.Client {
	return outbound.New(outbound.Options{Private: outbound.PrivateAll})
}

// Verifier returns what checks the access tokens of callers.
func (s *Services) Verifier(settings oauth.Settings, log *slog.Logger) *oauth.Verifier {
	return oauth.New(settings, s.issuers, log)
}

// Declare sets the Secret resources to those that were found. A secret whose file has faults, or
// cannot be read, stays as it was until that is fixed: a file that is half written must not remove
// it, nor let one of the environment replace it.
func (s *Services) Declare(found manifest.Result) {
	var broken []string
	for _, p := range found.Problems {
		if _, unread := errors.AsType[*fs.PathError](p.Err); unread || p.Severity == manifest.Fault {
			broken = append(broken, p.Path)
		}
	}
	declared := slices.Clone(found.Secrets)
	for _, old := range s.declared {
		if slices.ContainsFunc(broken, func(path string) bool {
			return old.Source == path || strings.HasPrefix(old.Source, path+string(filepath.Separator))
		}) {
			declared = append(declared, old) // of two with one name the first counts
		}
	}
	s.declared = declared
	s.secrets.Set(declared)
}

// Secrets has the secrets of tools by their names.
func (s *Services) Secrets() *secret.Store { return s.secrets }

// Configure applies the settings of cfg.
func (s *Services) Configure(cfg *config.Loaded) {
	s.secrets.SetDir(cfg.SecretsDir)
	s.client.Allow(outbound.Private(cfg.AllowPrivateEndpoints))
}

// auth returns the options for credentials.
func (s *Services) auth() auth.Options { return auth.Options{Secrets: s.secrets, Tokens: s.tokens} }

// posting returns the options of tools that answer by HTTP.
func (s *Services) posting() post.Options {
	return post.Options{Client: s.client, Auth: s.auth(), UserAgent: "orla/" + version.Version()}
}

// post makes the provider of a tool of type http or external.
func (s *Services) post(t manifest.Tool) (supervisor.Provider, error) {
	return post.New(t, s.posting())
}

// webhook makes the provider of a tool of type webhook-callback.
func (s *Services) webhook(t manifest.Tool) (supervisor.Provider, error) {
	return webhook.New(t, webhook.Options{Options: s.posting(), Callbacks: s.Callbacks})
}

// grpc makes the provider of a tool of type grpc.
func (s *Services) grpc(t manifest.Tool) (supervisor.Provider, error) {
	return grpc.New(t, s.posting())
}
