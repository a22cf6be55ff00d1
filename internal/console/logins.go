package console

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/orla-project/orla/internal/call/pace"
	"github.com/orla-project/orla/internal/call/turns"
)

// redirectOf returns where an authorization server sends the browser back to: to the page from which it came.
func redirectOf(r *http.Request) string { return strings.ToLower(r.Header.Get("Origin")) + loginPath }

const (
	// loginWait is how long a login waits for its turn to ask the authorization server.
	loginWait = 10 * time.Second
	// failedPause is how long a login that has failed keeps its place. So whoever invents answers does not make Orla ask the
	// authorization server more often than maxLogins times a second.
	failedPause = time.Second
)

// ask calls f with a login when a place is free, unless there is none of them, or that lasts too long. Then it answers with
// why, and reports false. The places are shared between networks: nobody needs to be known to take one.
func (c *Console) ask(w http.ResponseWriter, r *http.Request, places *turns.Shares, f func(context.Context, *Login) error) bool {
	d := c.doors.Load()
	if d.Token == nil || d.Login == nil {
		refuse(w, http.StatusForbidden, "Nobody can log in to this Orla by an authorization server.", "auth.oauth.console_client_id in its configuration makes that possible")
		return false
	}
	owner := turns.Owner{Session: turns.NetworkOf(r.RemoteAddr)}
	ctx, cancel := context.WithTimeout(r.Context(), loginWait)
	defer cancel()
	if places.Take(ctx, owner, 1) != nil {
		refuse(w, http.StatusTooManyRequests, "Too many are logging in at once.", "try again")
		return false
	}
	defer places.Give(owner, 1)
	if err := f(r.Context(), d.Login); err != nil {
		c.logRefused("a login to the console did not succeed", "err", err)
		refuse(w, http.StatusForbidden, "The login at "+d.Login.Host+" did not succeed: "+err.Error()+".", "")
		pace.Sleep(c.over, failedPause) //nolint:contextcheck // also if the client has hung up
		return false
	}
	return true
}

// ticket begins a login at the authorization server.
func (c *Console) ticket(w http.ResponseWriter, r *http.Request) {
	var t Ticket
	if c.ask(w, r, c.entering.tickets, func(ctx context.Context, l *Login) (err error) {
		t, err = l.Begin(ctx, redirectOf(r))
		return err
	}) {
		answer(w, http.StatusOK, t)
	}
}

// byAnswer returns the token for the answer of the authorization server. Without one, it answers with why. That the browser
// which brings the answer is the one that began is certain by the verifier, without which the code is worth nothing.
func (c *Console) byAnswer(w http.ResponseWriter, r *http.Request, t Ticket, said string) (token string, ok bool) {
	ok = c.ask(w, r, c.entering.logins, func(ctx context.Context, l *Login) (err error) {
		token, err = l.Finish(ctx, redirectOf(r), t, said)
		return err
	})
	return token, ok
}
