package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/decisions"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/call/approvals/passkey"
	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/internal/observe/audit"
	"github.com/orla-project/orla/mcpbridge/transport/httpfront"
)

// admissionLife is for how long after a link was used its page may register a passkey.
const admissionLife = 10 * time.Minute

// newDecisions returns what answers the requests about approvals.
func (s *server) newDecisions() *decisions.Decisions {
	return &decisions.Decisions{
		Store: s.Governance.Approvals, Await: s.AwaitApprovals, SameUser: func() bool { return s.current().Approvals.SameUser },
		Passkeys: s.Approving.Passkeys, Unrecorded: s.Audit.Err, Log: s.log.Logger,
		Registered: func(k *passkey.Key) {
			s.Audit.RecordPasskey(&audit.Passkey{Owner: k.Owner, RP: k.RP, Name: k.Name, Public: k.Public})
		},
	}
}

// serveConsole adds the web page to the HTTP front.
func (s *server) serveConsole(cfg *config.Loaded, settings *httpfront.Settings) {
	s.page = console.New(console.Options{
		API: s.decisions.Page(s.control.PageAPI()), Instance: control.Name(cfg.Folder()), Log: s.log.Logger, As: s.asVisitor,
		Admitted:    func(ctx context.Context, g console.Guest) { listen.Admitted(ctx, callerOf(g).Name) },
		HeadersRead: listen.HeadersRead,
	})
	s.openConsole(cfg, settings)
	for _, pattern := range console.Patterns() {
		s.http.Handle(pattern, s.page)
	}
}

// openConsole lets in whom a configuration lets in, and nobody else.
func (s *server) openConsole(cfg *config.Loaded, settings *httpfront.Settings) {
	s.page.Turn(cfg.Console == config.ConsoleOn)
	s.page.Open(doorsOf(cfg, settings))
}

// doorsOf returns how a configuration lets people in beyond loopback: with the tokens of its callers that have a role.
func doorsOf(cfg *config.Loaded, settings *httpfront.Settings) console.Doors {
	if settings.Verify == nil || !slices.ContainsFunc(cfg.Callers, func(c config.CallerConfig) bool { return len(c.Console) > 0 }) {
		return console.Doors{}
	}
	return console.Doors{
		Hosts: cfg.AllowedHosts,
		Token: func(ctx context.Context, text string) (console.Guest, time.Time, error) {
			info, err := settings.Verify(ctx, text, &http.Request{})
			if err != nil {
				return console.Guest{}, time.Time{}, err
			}
			groups, _ := info.Extra[httpfront.GroupsKey].([]string)
			g := console.Guest{Name: info.UserID, Groups: groups, Token: tokenKey(settings, info.UserID), Issued: strings.HasPrefix(info.UserID, httpfront.IssuedPrefix)}
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
		Name: v.Name, Roles: decisions.Roles(), Origin: v.Origin, Issued: v.Issued,
		Redeem: func(link string) decisions.Admission {
			g, _ := v.Redeem(link)
			return decisions.Admission(g.Admits)
		},
	}
	switch {
	case v.Token != "":
		who.Roles = s.current().ConsoleRoles(v.Name, v.Groups)
	case time.Since(v.Entered) < admissionLife:
		who.Admits = decisions.Admission(v.Admits)
	}
	return control.WithCaller(decisions.With(ctx, who), callerOf(v.Guest))
}

// ConsoleLink implements control.Backend.
func (o operations) ConsoleLink(by control.Peer) (control.ConsoleLink, error) {
	refused := func(why, hint string) (control.ConsoleLink, error) {
		return control.ConsoleLink{}, &control.Error{Code: control.CodeRefused, Message: why, Hint: hint}
	}
	if o.page == nil {
		return refused("this Orla serves one client on stdin and stdout, and no console", "orla status shows its state")
	}
	if !o.page.On() {
		return refused("the configuration says console: off", "orla status shows the same")
	}
	base := consoleAddress(o.web.URL())
	if base == "" {
		return refused("the console is served on a loopback address only, and Orla listens on "+o.web.URL(), "listen on 127.0.0.1, or on all addresses, which has 127.0.0.1 too")
	}
	path, until := o.page.Link(console.Guest{Name: decisions.NameOf(by), Admits: int(o.Admission(by))})
	return control.ConsoleLink{URL: base + path, Expires: until}, nil
}

// consoleAddress returns where this machine reaches the page of an Orla with an address; "" if it does not.
func consoleAddress(at string) string {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" {
		return ""
	}
	addr, err := netip.ParseAddr(u.Hostname())
	ours := netip.MustParseAddr("127.0.0.1")
	switch {
	case err != nil:
		return ""
	case addr == netip.IPv6Unspecified(), (addr.IsUnspecified() || addr == ours) && isFree("::1", u.Port()):
		return "http://" + net.JoinHostPort("localhost", u.Port())
	case addr.IsUnspecified():
		return "http://" + net.JoinHostPort("127.0.0.1", u.Port())
	case !addr.Unmap().IsLoopback():
		return ""
	}
	return "http://" + u.Host
}

// isFree reports whether nobody listens on an address. Passkeys are for names, and so for localhost, which browsers look
// for at ::1 first: another program there would get the link.
func isFree(address, port string) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(address, port)) //nolint:noctx // it does not wait
	if err == nil {
		_ = l.Close() // nobody has connected
	}
	return err == nil || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)
}
