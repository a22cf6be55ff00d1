package wiring

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/doctor"
	"github.com/orla-project/orla/internal/app/version"
	"github.com/orla-project/orla/internal/service/auth"
	"github.com/orla-project/orla/internal/service/login"
	"github.com/orla-project/orla/internal/service/outbound"
	"github.com/orla-project/orla/manifest"
)

// loginsDir is the folder of logins; "" without a state folder.
func loginsDir(cfg *config.Loaded) string { return config.StateDir(cfg, "logins") }

// serverAuth returns the credentials for a remote server: those of spec.auth, or else of a login, if there
// is one.
func (s *Services) serverAuth(t manifest.Tool) *auth.Source {
	far := t.Runtime.Remote
	if TakesLogin(t) {
		return auth.NewLogin(s.logins.Tokens(t.Name, far.Endpoint, far.Auth.Profile == manifest.AuthLogin))
	}
	return auth.New(far.Auth, s.auth())
}

// TakesLogin reports whether a person can log in to a tool: it is a remote McpServer without other
// credentials.
func TakesLogin(t manifest.Tool) bool {
	far := t.Runtime.Remote
	return far != nil && (far.Auth.IsZero() || far.Auth.Profile == manifest.AuthLogin)
}

// Login describes the login of a server for people; "" if there is none. needed says that somebody has to
// log in.
func (s *Services) Login(t manifest.Tool) (text string, needed bool) {
	if !TakesLogin(t) {
		return "", false
	}
	r, err := s.logins.Find(t.Name, t.Runtime.Remote.Endpoint)
	switch {
	case err != nil:
		return "cannot be used: " + err.Error(), true
	case r != nil:
		return r.Summary(), !r.Usable()
	case t.Runtime.Remote.Auth.Profile == manifest.AuthLogin:
		return "nobody has logged in; run: orla login " + t.Name, true
	}
	return "", false
}

// DescribeLogin describes the login of a server for people.
func DescribeLogin(cfg *config.Loaded, t manifest.Tool) string {
	s := &Services{logins: login.NewStore(loginsDir(cfg), nil, nil)}
	text, _ := s.Login(t)
	return cmp.Or(text, "not logged in")
}

// Login logs a person in to a server. opts has what the command line says.
func Login(ctx context.Context, cfg *config.Loaded, found manifest.Result, t manifest.Tool, opts login.Options) (*login.Record, error) {
	if opts.Dir = loginsDir(cfg); opts.Dir == "" {
		return nil, errors.New("there is no state_dir to keep the login in")
	}
	services := newServices(cfg, nil, nil)
	defer services.client.Close()
	services.Declare(found)
	far := t.Runtime.Remote
	if opts.ClientID == "" && far.Auth.ClientID != "" {
		if opts.Issuer != "" && far.Auth.Issuer != "" && opts.Issuer != far.Auth.Issuer {
			return nil, fmt.Errorf("clientID of spec.auth is for the issuer %s; for another issuer, give its client too: --client-id", far.Auth.Issuer)
		}
		opts.ClientID = far.Auth.ClientID
		if !far.Auth.Secret.IsZero() {
			value, err := services.secrets.Resolve(far.Auth.Secret)
			if err != nil {
				return nil, err
			}
			opts.ClientSecret = value.Reveal()
		}
	}
	opts.Issuer = cmp.Or(opts.Issuer, far.Auth.Issuer)
	if len(opts.Scopes) == 0 {
		opts.Scopes = far.Auth.Scopes
	}
	opts.Client, opts.Server, opts.Endpoint = services.client, t.Name, far.Endpoint
	opts.Document, opts.UserAgent = cfg.ClientMetadataURL, "orla/"+version.Version()
	return login.Login(ctx, opts)
}

// Logout forgets the login of a server; see login.Logout. others are files of logins at endpoints that
// the server had before.
func Logout(ctx context.Context, cfg *config.Loaded, t manifest.Tool) (was bool, others []string, revoked, err error) {
	dir := loginsDir(cfg)
	if dir == "" {
		return false, nil, nil, nil
	}
	client := outbound.New(outbound.Options{Private: outbound.Private(cfg.AllowPrivateEndpoints)})
	defer client.Close()
	was, revoked, err = login.Logout(ctx, client, dir, t.Name, t.Runtime.Remote.Endpoint)
	return was, login.Others(dir, t.Name, t.Runtime.Remote.Endpoint), revoked, err
}

// ExamineLogins reports on the logins of servers. It asks nobody.
func ExamineLogins(cfg *config.Loaded, tools []manifest.Tool) []doctor.Finding {
	store := login.NewStore(loginsDir(cfg), nil, nil)
	var findings []doctor.Finding
	for _, t := range tools {
		if !TakesLogin(t) {
			continue
		}
		fix := "orla login " + doctor.Quote(t.Name)
		add := func(level doctor.Level, text string) {
			findings = append(findings, doctor.Finding{Check: "login", Level: level, Text: fmt.Sprintf("%s: %s", t.Name, text), Fix: fix})
		}
		r, err := store.Find(t.Name, t.Runtime.Remote.Endpoint)
		switch {
		case err != nil:
			add(doctor.Fail, err.Error())
		case r != nil && r.Usable():
			add(doctor.OK, r.Summary())
		case r != nil:
			add(doctor.Fail, r.Summary())
		case t.Runtime.Remote.Auth.Profile == manifest.AuthLogin:
			add(doctor.Fail, "nobody has logged in")
		}
	}
	return findings
}
