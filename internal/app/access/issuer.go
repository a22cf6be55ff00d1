package access

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

// MetadataPaths are where clients look for the metadata of the protected resource (RFC 9728 §3.1): at the
// root, and under the path of the resource.
var MetadataPaths = [...]string{oauth.MetadataPath, oauth.MetadataPath + "/mcp"}

// Issuer is the issuer of access tokens that is in force. As a service it keeps the issuer's keys. Its
// zero value means no issuer.
type Issuer struct {
	mu      sync.Mutex // guards the fields that follow
	current *Issued    // nil without auth.oauth
	changed chan struct{}
}

// Issued are the access tokens that are accepted.
type Issued struct {
	settings oauth.Settings
	verifier *oauth.Verifier
	metadata http.Handler
}

// String names the service in logs.
func (i *Issuer) String() string { return "keys of the issuer" }

// Of returns the tokens that a configuration accepts; nil for none. Unless they change, they keep their
// keys.
func (i *Issuer) Of(cfg *config.Loaded, services *wiring.Services, log *slog.Logger) *Issued {
	settings := cfg.Auth.OAuth.Settings()
	if settings.Issuer == "" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.current != nil && i.current.settings.Equal(settings) {
		return i.current
	}
	return &Issued{settings, services.Verifier(settings, log), auth.ProtectedResourceMetadataHandler(settings.Metadata())}
}

// Use puts tokens into force.
func (i *Issuer) Use(tokens *Issued) {
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
func (i *Issuer) now() (*Issued, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.changed == nil {
		i.changed = make(chan struct{})
	}
	return i.current, i.changed
}

// Serve fetches the keys of the issuer in force, until ctx ends.
func (i *Issuer) Serve(ctx context.Context) error {
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
func (t *Issued) run(ctx context.Context, changed <-chan struct{}) {
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
func (i *Issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	tokens, _ := i.now()
	if tokens == nil {
		http.NotFound(w, r)
		return
	}
	tokens.metadata.ServeHTTP(w, r)
}

// Join adds access tokens to the static tokens that settings accept.
func (t *Issued) Join(settings *httpfront.Settings) {
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
func (t *Issued) verify(ctx context.Context, from, token string) (*auth.TokenInfo, error) {
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
