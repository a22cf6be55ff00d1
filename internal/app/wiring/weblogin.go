package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/internal/service/login"
)

// ConsoleSecret reads the secret of the console's client; "" for one that has none.
func ConsoleSecret(cfg *config.Loaded) (string, error) {
	path := cfg.ConsoleSecretFile()
	if path == "" {
		return "", nil
	}
	data, err := config.ReadSmall(path)
	text := strings.TrimSpace(string(data))
	if err == nil && text == "" {
		err = fmt.Errorf("%s has no secret", path)
	}
	if err != nil {
		return "", cfg.At("auth.oauth.console_client_secret_file", err)
	}
	return text, nil
}

// ConsoleLogin returns where people log in to the page of the console; nil for nowhere (SPEC O3, docs/decisions/0057). owns
// returns why a page may be one of another program. Such a page gets no login, unless allowed_hosts has its host and port.
func (s *Services) ConsoleLogin(cfg *config.Loaded, owns func(ctx context.Context, page string) error) *console.Login {
	o := cfg.Auth.OAuth
	at, err := url.Parse(o.Issuer)
	if err != nil || o.ClientID == "" {
		return nil
	}
	settings := o.Settings()
	web := &login.Web{
		Client: s.issuers, Issuer: o.Issuer, ClientID: o.ClientID,
		Resource: settings.Resource(), Audience: settings.Audience, Scopes: settings.Scopes,
	}
	if cfg.ConsoleSecretFile() != "" {
		web.Secret = func() (string, error) { return ConsoleSecret(cfg) }
	}
	ours := func(ctx context.Context, redirect string) error {
		page, err := url.Parse(redirect)
		if err == nil && page.Port() != "" && slices.Contains(cfg.AllowedHosts, page.Host) {
			return nil
		}
		return cmp.Or(err, owns(ctx, redirect))
	}
	return &console.Login{
		Host: at.Hostname(),
		Begin: func(ctx context.Context, redirect string) (console.Ticket, error) {
			if err := ours(ctx, redirect); err != nil {
				return console.Ticket{}, err
			}
			t, err := web.Begin(ctx, redirect)
			return console.Ticket(t), err
		},
		Finish: func(ctx context.Context, redirect string, t console.Ticket, answer string) (string, error) {
			if err := ours(ctx, redirect); err != nil {
				return "", err
			}
			said, err := url.ParseQuery(answer)
			if err != nil {
				return "", errors.New("the answer is not the query of a URL")
			}
			return web.Finish(ctx, redirect, login.Ticket(t), said)
		},
	}
}
