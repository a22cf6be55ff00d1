package console

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/turns"
)

// Doors are how else than by a link somebody gets in. The zero value is none.
type Doors struct {
	// Token returns whose token a text is that came from an address with a port, and when the session ends at the latest; zero for no
	// such time. Its error is for the person who has it. nil accepts no token.
	Token func(ctx context.Context, from, text string) (Guest, time.Time, error)
	// Still reports whether a guest with a token may stay. It must not be nil if Token is not.
	Still func(Guest) bool
	// Login, if not nil, is where people log in for a token. It needs Token.
	Login *Login
	// Hosts are the names that the page has elsewhere, each with a port or without.
	Hosts []string
}

// Login is an authorization server that gives tokens to people.
type Login struct {
	// Host is its name, for people.
	Host string
	// Begin returns a login whose answer the browser brings to a redirect URL.
	Begin func(ctx context.Context, redirect string) (Ticket, error)
	// Finish returns the token for the answer, which is the query of a URL.
	Finish func(ctx context.Context, redirect string, t Ticket, answer string) (token string, err error)
}

// Ticket is a login that has begun. The page keeps it, and Orla does not.
type Ticket struct {
	Open     string `json:"open,omitempty"` // where the person logs in
	State    string `json:"state"`
	Verifier string `json:"verifier"`
}

// Visit is a request of somebody who was let in.
type Visit struct {
	Guest
	Origin  string    // of the page
	Session string    // distinguishes sessions; it is not a secret
	Entered time.Time // when the session began
	// Redeem returns whose link has a code, or is a link; false if it is not good. It is used up.
	Redeem func(link string) (Guest, bool)
}

// Open lets in by other doors than before. Sessions end whose guests may not stay.
func (c *Console) Open(d Doors) {
	c.doors.Store(&d)
	c.access.keep(func(g Guest) bool { return d.Token != nil && d.Still(g) })
}

// isLocal reports whether a request came to a loopback address by one of its names.
func isLocal(r *http.Request) bool { return ownMachine(r) && loopbackName(r.Host) }

// invited reports whether a request came by a name that the page has elsewhere. An address is not a name that somebody
// could make lead here.
func (d *Doors) invited(host string) bool {
	if d.Token == nil {
		return false
	}
	name, port := split(host)
	if at, err := netip.ParseAddr(name); err == nil {
		return at.Zone() == "" && !at.Unmap().IsLoopback() && !at.IsUnspecified()
	}
	for _, entry := range d.Hosts {
		if known, at := split(entry); known == name && (at == "" || at == port) {
			return true
		}
	}
	return false
}

// split returns the name of a host, in lower case and without a final dot, and its port; "" for none.
func split(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), ""
	}
	return strings.TrimSuffix(strings.ToLower(name), "."), port
}

// door says how to get in here.
func (c *Console) door(w http.ResponseWriter, r *http.Request) {
	d := c.doors.Load()
	at := ""
	if d.Token != nil && d.Login != nil {
		at = d.Login.Host
	}
	answer(w, http.StatusOK, map[string]any{"link": isLocal(r), "token": d.Token != nil, "login": at})
}

// login exchanges the code of a link, or a token, for a session.
func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		Code   string `json:"code"`
		Token  string `json:"token"`
		Answer string `json:"answer"` // of the authorization server, to a ticket
		Ticket
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxLogin))
	if err == nil && !c.entering.bodies.Do(r.Context(), turns.NetworkOf(r.RemoteAddr), func() { err = json.Unmarshal(body, &asked) }) {
		refuse(w, http.StatusTooManyRequests, "Too many are logging in at once.", "try again")
		return
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the request's body is not a login", "")
		return
	}
	var guest Guest
	var ends time.Time
	var ok bool
	if asked.Answer != "" {
		if asked.Token, ok = c.byAnswer(w, r, asked.Ticket, asked.Answer); !ok {
			return
		}
	}
	switch {
	case asked.Token != "":
		if guest, ends, ok = c.byToken(w, r, asked.Token); !ok {
			return
		}
		guest.LoggedIn = asked.Answer != ""
	case !isLocal(r):
		refuse(w, http.StatusForbidden, "A link is for a browser on the machine of Orla.", "enter with a token")
		return
	default:
		if guest, ok = c.access.redeem(asked.Code, time.Now()); !ok {
			c.logRefused("a link to the console was refused: it was used, or is too old")
			refuse(w, http.StatusForbidden, "This link was used, or is older than a minute.", "orla console prints another one")
			return
		}
	}
	origin := strings.ToLower(r.Header.Get("Origin"))
	token, key, ok := c.access.enter(guest, origin, time.Now(), ends)
	if !ok {
		refuse(w, http.StatusTooManyRequests, "Too many browsers have the console open.", "try again later")
		return
	}
	c.opts.Log.Info("a browser was let into the console", "sessions", c.access.count(), "by", guest.Name)
	c.setCookie(w, token, strings.HasPrefix(origin, "https:"), 0)
	answer(w, http.StatusOK, map[string]string{"key": key})
}

// byToken returns whose token a text is. If nobody's, it answers with why.
func (c *Console) byToken(w http.ResponseWriter, r *http.Request, text string) (Guest, time.Time, bool) {
	d := c.doors.Load()
	if d.Token == nil {
		refuse(w, http.StatusForbidden, "This Orla takes no tokens.", "orla console prints a link")
		return Guest{}, time.Time{}, false
	}
	guest, ends, err := d.Token(r.Context(), r.RemoteAddr, text)
	if err != nil {
		c.logRefused("a token was refused at the console", "err", err)
		refuse(w, http.StatusForbidden, "This token does not let you in: "+err.Error()+".", "")
		return Guest{}, time.Time{}, false
	}
	return guest, ends, true
}

// setCookie sets the cookie of a session. The page's own origin says whether there is TLS, also behind a proxy: the
// browser sends it.
func (c *Console) setCookie(w http.ResponseWriter, value string, secure bool, age int) {
	http.SetCookie(w, &http.Cookie{ //nolint:gosec // it is Secure where there is TLS
		Name: c.cookie(), Value: value, Path: "/", MaxAge: age, HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode,
	})
}

// logRefused logs that somebody was not let in, ten times a minute at most.
func (c *Console) logRefused(what string, args ...any) {
	if shown, left := c.refused.Allow(maxRefused); shown {
		c.opts.Log.Warn(what, append(args, "not_shown", left)...) //nolint:sloglint // it is a constant of the two callers
	}
}
