package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/auth"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/wiring"
	"github.com/orla-project/orla/internal/service/oauth"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// metadataPaths are where clients look for the metadata of the protected resource (RFC 9728 §3.1): at the
// root, and under the path of the resource.
var metadataPaths = [...]string{oauth.MetadataPath, oauth.MetadataPath + "/mcp"}

// issuer is the issuer of access tokens that is in force. As a service it keeps the issuer's keys. Its
// zero value means no issuer.
type issuer struct {
	mu      sync.Mutex // guards the fields that follow
	current *issued    // nil without auth.oauth
	changed chan struct{}
}

// issued are the access tokens that are accepted.
type issued struct {
	settings oauth.Settings
	verifier *oauth.Verifier
	metadata http.Handler
}

// String names the service in logs.
func (i *issuer) String() string { return "keys of the issuer" }

// of returns the tokens that a configuration accepts; nil for none. Unless they change, they keep their
// keys.
func (i *issuer) of(cfg *config.Loaded, services *wiring.Services, log *slog.Logger) *issued {
	settings := cfg.Auth.OAuth.Settings()
	if settings.Issuer == "" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil && i.current.settings.Equal(settings) {
		return i.current
	}
	return &issued{settings, services.Verifier(settings, log), auth.ProtectedResourceMetadataHandler(settings.Metadata())}
}

// use puts tokens into force.
func (i *issuer) use(tokens *issued) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if tokens == i.current {
		return
	}
	i.current = tokens
	if i.changed != nil {
		close(i.changed)
		i.changed = nil
	}
}

// now returns the tokens in force, and a channel that closes when others are.
func (i *issuer) now() (*issued, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.changed == nil {
		i.changed = make(chan struct{})
	}
	return i.current, i.changed
}

// Serve fetches the keys of the issuer in force, until ctx ends.
func (i *issuer) Serve(ctx context.Context) error {
	for ctx.Err() == nil {
		tokens, changed := i.now()
		if tokens == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		tokens.run(ctx, changed)
	}
	return ctx.Err()
}

// run fetches the keys until others are in force, or ctx ends.
func (t *issued) run(ctx context.Context, changed <-chan struct{}) {
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() {
		select {
		case <-changed:
			cancel()
		case <-ctx.Done():
		}
	})
	t.verifier.Run(ctx)
}

// ServeHTTP serves the metadata of the protected resource. It is public, and each web page may read it.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tokens, _ := i.now()
	if tokens == nil {
		http.NotFound(w, r)
		return
	}
	tokens.metadata.ServeHTTP(w, r)
}

// join adds access tokens to the static tokens that settings accept.
func (t *issued) join(settings *httpfront.Settings) {
	if t == nil {
		return
	}
	static := settings.Verify
	settings.Verify = func(ctx context.Context, token string, r *http.Request) (*auth.TokenInfo, error) {
		if static != nil {
			if info, err := static(ctx, token, r); err == nil {
				return info, nil
			}
		}
		return t.verify(ctx, r.RemoteAddr, token)
	}
	settings.Callers = maps.Clone(settings.Callers)
	if settings.Callers == nil {
		settings.Callers = map[string]string{}
	}
	settings.Callers[httpfront.IssuedPrefix] = fmt.Sprintf("%q", t.settings)
	settings.ResourceMetadata, settings.Scopes = t.settings.MetadataURL(), t.settings.Scopes
}

// verify returns who has an access token, as httpfront.Settings.Verify does.
func (t *issued) verify(ctx context.Context, from, token string) (*auth.TokenInfo, error) {
	caller, err := t.verifier.Verify(ctx, from, token)
	switch {
	case err == nil:
		return &auth.TokenInfo{
			UserID: httpfront.IssuedPrefix + caller.Subject, Scopes: caller.Scopes, Expiration: caller.Expires,
			Extra: map[string]any{httpfront.GroupsKey: caller.Groups},
		}, nil
	case errors.Is(err, oauth.ErrScope):
		return nil, fmt.Errorf("%w: %w", httpfront.ErrInsufficientScope, err)
	case errors.Is(err, oauth.ErrUnavailable):
		return nil, fmt.Errorf("%w: %w", httpfront.ErrUnavailable, err)
	}
	return nil, fmt.Errorf("%w: %w", auth.ErrInvalidToken, err)
}
