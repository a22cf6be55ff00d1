package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/control/unixsocket"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/call/turns"
	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// newDecisions returns what answers the requests about approvals.
func (s *server) newDecisions() *decisions.Decisions {
	return &decisions.Decisions{
		Store: s.Governance.Approvals, Await: s.AwaitApprovals,
		SameUser: func() bool { return s.current().Approvals.SameUser }, ByLogin: func() bool { return s.current().Approvals.ByLogin },
		Passkeys: s.Approving.Passkeys, Unrecorded: s.Audit.Err, Log: s.log.Logger,
		Changed: func(c *decisions.PasskeyChange) {
			k := c.Key
			s.Audit.RecordPasskey(&audit.Passkey{Owner: k.Owner, Origin: k.Origin, Name: k.Name, Public: k.Public, Change: c.What, By: c.By, Proof: c.Proof, Document: c.Document})
		},
	}
}

// serveConsole adds the web page to the HTTP front.
func (s *server) serveConsole(cfg *config.Loaded, settings *httpfront.Settings) {
	s.page = console.New(console.Options{
		API: s.decisions.Page(s.control.PageAPI()), Instance: unixsocket.Name(cfg.Folder()), Log: s.log.Logger, As: s.asVisitor,
		Admitted:    func(ctx context.Context, g console.Guest) { listen.Admitted(ctx, callerOf(g).Name) },
		HeadersRead: func(ctx context.Context) { listen.HeadersRead(ctx, true) },
	})
	s.openConsole(cfg, settings)
	for _, pattern := range console.Patterns() {
		s.http.Handle(pattern, s.page)
	}
}

// openConsole lets in whom a configuration lets in, and nobody else.
func (s *server) openConsole(cfg *config.Loaded, settings *httpfront.Settings) {
	s.page.Turn(cfg.Console == config.ConsoleOn)
	s.page.Open(s.doorsOf(cfg, settings))
}

// doorsOf returns how a configuration lets people in beyond loopback: with the tokens of its callers that have a role.
func (s *server) doorsOf(cfg *config.Loaded, settings *httpfront.Settings) console.Doors {
	if settings.Verify == nil || !slices.ContainsFunc(cfg.Callers, func(c config.CallerConfig) bool { return len(c.Console) > 0 }) {
		return console.Doors{}
	}
	owns := func(ctx context.Context, page string) error { return s.web.Owns(ctx, page) } // there is no s.web yet at the start
	return console.Doors{
		Hosts: cfg.AllowedHosts, Login: s.Services.ConsoleLogin(cfg, owns),
		Token: func(ctx context.Context, from, text string) (console.Guest, time.Time, error) {
			info, err := settings.Verify(ctx, text, &http.Request{RemoteAddr: from})
			if err != nil {
				return console.Guest{}, time.Time{}, err
			}
			groups, _ := info.Extra[httpfront.GroupsKey].([]string)
			g := console.Guest{Name: info.UserID, Groups: groups, Token: tokenKey(settings, info.UserID)}
			if g.Token == "" || len(cfg.ConsoleRoles(g.Name, g.Groups)) == 0 {
				return console.Guest{}, time.Time{}, fmt.Errorf("%s has no role here: console in its entry of callers gives it some", g.Name)
			}
			return g, info.Expiration, nil
		},
		Still: func(g console.Guest) bool {
			return g.Token == tokenKey(settings, g.Name) && len(cfg.ConsoleRoles(g.Name, g.Groups)) > 0
		},
	}
}

// tokenKey changes with the token of a caller, or with the server that issues it; "" for no such caller.
func tokenKey(settings *httpfront.Settings, caller string) string {
	if strings.HasPrefix(caller, httpfront.IssuedPrefix) {
		caller = httpfront.IssuedPrefix
	}
	key, ok := settings.Callers[caller]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
}

// callerOf returns who makes the calls of a guest.
func callerOf(g console.Guest) control.Caller {
	if g.Token == "" {
		return control.Caller{Name: control.Page}
	}
	return control.Caller{Name: g.Name, Groups: g.Groups}
}

// asVisitor returns the context of a request of somebody who was let in.
func (s *server) asVisitor(ctx context.Context, v console.Visit) context.Context {
	who := &decisions.Visitor{
		Name: v.Name, Roles: decisions.Roles(), Origin: v.Origin, Session: v.Session, LoggedIn: v.LoggedIn,
		Admits: decisions.Admission(v.Admits), Entered: v.Entered,
		NoPasskeys: func() error { return s.web.Owns(ctx, v.Origin) },
		Redeem: func(link string) decisions.Admission {
			g, _ := v.Redeem(link)
			return decisions.Admission(g.Admits)
		},
	}
	if v.Token != "" {
		who.Roles = s.current().ConsoleRoles(v.Name, v.Groups)
	}
	by := callerOf(v.Guest)
	ctx = s.http.Working.In(ctx, turns.Owner{Caller: by.Name, Session: v.Session})
	return control.WithCaller(decisions.With(ctx, who), by)
}

// ConsoleLink implements control.Backend.
func (o operations) ConsoleLink(ctx context.Context, by control.Peer) (control.ConsoleLink, error) {
	refused := func(why, hint string) (control.ConsoleLink, error) {
		return control.ConsoleLink{}, &control.Error{Code: control.CodeRefused, Message: why, Hint: hint}
	}
	if o.page == nil {
		return refused("this Orla serves one client on stdin and stdout, and no console", "orla status shows its state")
	}
	if !o.page.On() {
		return refused("the configuration says console: off", "orla status shows the same")
	}
	base := o.consoleAddress(ctx)
	if base == "" {
		return refused("the console is served on a loopback address only, and Orla listens on "+o.web.URL(), "listen on 127.0.0.1, or on all addresses, which has 127.0.0.1 too")
	}
	path, until := o.page.Link(console.Guest{Name: decisions.NameOf(by), Admits: int(o.Admission(by))})
	return control.ConsoleLink{URL: base + path, Expires: until}, nil
}

// consoleAddress returns where a browser of this machine reaches the page; "" if it does not. Passkeys are for names, and
// so for localhost, but only if no other program can be there.
func (s *server) consoleAddress(ctx context.Context) string {
	u, err := url.Parse(s.web.URL())
	if err != nil || u.Scheme != "http" {
		return ""
	}
	addr, err := netip.ParseAddr(u.Hostname())
	ours := netip.MustParseAddr("127.0.0.1")
	switch {
	case err != nil || !addr.IsUnspecified() && !addr.Unmap().IsLoopback():
		return ""
	case !addr.IsUnspecified() && addr.Unmap() != ours:
		return "http://" + u.Host
	}
	name := "localhost"
	if err := s.web.HoldLocalhost(ctx); err != nil {
		s.log.Warn("the console has the address 127.0.0.1, where no passkey works: another program could be at localhost", "err", err)
		name = ours.String()
	}
	return "http://" + net.JoinHostPort(name, u.Port())
}
