package console

import (
	"context"
	"net/http"
	"strings"
)

// redirectOf returns where an authorization server sends the browser back to: to the page from which it came.
func redirectOf(r *http.Request) string { return strings.ToLower(r.Header.Get("Origin")) + loginPath }

// ask calls f with a login, unless there is none, or too many ask it already. Then it answers with why, and reports false.
func (c *Console) ask(w http.ResponseWriter, r *http.Request, f func(context.Context, *Login) error) bool {
	d := c.doors.Load()
	if d.Token == nil || d.Login == nil {
		refuse(w, http.StatusForbidden, "Nobody can log in to this Orla by an authorization server.", "auth.oauth.console_client_id in its configuration makes that possible")
		return false
	}
	select {
	case c.logins <- struct{}{}:
		defer func() { <-c.logins }()
	default:
		refuse(w, http.StatusTooManyRequests, "Too many are logging in at once.", "try again")
		return false
	}
	if err := f(r.Context(), d.Login); err != nil {
		c.logRefused("a login to the console did not succeed", "err", err)
		refuse(w, http.StatusForbidden, "The login at "+d.Login.Host+" did not succeed: "+err.Error()+".", "")
		return false
	}
	return true
}

// ticket begins a login at the authorization server.
func (c *Console) ticket(w http.ResponseWriter, r *http.Request) {
	var t Ticket
	if c.ask(w, r, func(ctx context.Context, l *Login) (err error) {
		t, err = l.Begin(ctx, redirectOf(r))
		return err
	}) {
		answer(w, http.StatusOK, t)
	}
}

// byAnswer returns the token for the answer of the authorization server. Without one, it answers with why. That the browser
// which brings the answer is the one that began is certain by the verifier, without which the code is worth nothing.
func (c *Console) byAnswer(w http.ResponseWriter, r *http.Request, t Ticket, said string) (token string, ok bool) {
	ok = c.ask(w, r, func(ctx context.Context, l *Login) (err error) {
		token, err = l.Finish(ctx, redirectOf(r), t, said)
		return err
	})
	return token, ok
}
