package login

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/orla-project/orla/internal/service/outbound"
)

// answer is what the issuer has said through the browser.
type answer struct{ query url.Values }

// errNotOurs refuses an answer that does not belong to this login. The login goes on.
var errNotOurs = errors.New("this is not the answer to this login")

// code returns the authorization code in an answer, if it is from the issuer and for the login with a
// state. announced says that the issuer names itself in its answers (RFC 9207).
func (a answer) code(state, issuer string, announced bool) (string, error) {
	if subtle.ConstantTimeCompare([]byte(a.one("state")), []byte(state)) != 1 {
		return "", errNotOurs
	}
	iss := a.one("iss")
	switch {
	case iss != issuer && (announced || a.query.Has("iss")):
		return "", fmt.Errorf("the answer is from the issuer %s, and not from %s; nothing was sent to either", quoted(iss), issuer)
	case a.query.Has("error"):
		text := outbound.Words(a.one("error")+" "+a.one("error_description"), maxWords)
		return "", fmt.Errorf("the issuer refuses the login: %s", text)
	case a.one("code") == "":
		return "", errors.New("the answer of the issuer has no code")
	}
	return a.one("code"), nil
}

// one returns a parameter that occurs once; else "".
func (a answer) one(name string) string {
	if values := a.query[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

// receiver waits for the browser on this machine.
type receiver struct {
	redirect string // the redirect URL
	opening  *opening
	listener net.Listener
	beside   net.Listener // at [::1], where browsers look for localhost first; nil for none
	server   *http.Server
}

// defaultPath is the path of the redirect URL of a client that somebody else has registered.
const defaultPath = "/callback"

// receive listens for the redirect. wanted is the redirect URL; without a port it is given one, and ""
// stands for a random port and path.
func receive(ctx context.Context, wanted string, answers func(answer) error) (*receiver, error) {
	at := &url.URL{Scheme: "http", Host: "127.0.0.1", Path: "/" + rand.Text()}
	if wanted != "" {
		var err error
		if at, err = CheckRedirect(wanted); err != nil {
			return nil, err
		}
	}
	host, port := at.Hostname(), at.Port()
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "0"
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("cannot wait for the browser: %w", err)
	}
	if at.Port() == "" {
		_, chosen, err := net.SplitHostPort(listener.Addr().String())
		if err != nil {
			return nil, errors.Join(err, listener.Close())
		}
		at.Host = net.JoinHostPort(at.Hostname(), chosen)
	}
	r := &receiver{redirect: at.String(), opening: newOpening(), listener: listener}
	if at.Hostname() == "localhost" {
		if r.beside, err = besides(ctx, at.Port()); err != nil {
			return nil, errors.Join(err, listener.Close())
		}
	}
	const most = 16 << 10
	r.server = &http.Server{
		Handler: page{at.Path, answers, r.opening}, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
		IdleTimeout: time.Second, MaxHeaderBytes: most,
	}
	return r, nil
}

// besides listens on a port of [::1]: somebody else there would get the answers that are for localhost. It returns nil on
// a machine without such an address.
func besides(ctx context.Context, port string) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp6", net.JoinHostPort("::1", port))
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return nil, nil //nolint:nilnil // there is none, for nobody
	case err != nil:
		return nil, fmt.Errorf("cannot wait for the browser at localhost, which it looks for at ::1 first: %w; http://127.0.0.1 in the redirect URL needs no ::1", err)
	}
	return l, nil
}

// CheckRedirect returns what is wrong with a redirect URL.
func CheckRedirect(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return nil, errors.New("the redirect URL must be like http://127.0.0.1:8765/callback")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); u.Hostname() != "localhost" && (err != nil || !ip.IsLoopback()) {
		return nil, errors.New("the redirect URL must be on this machine: http://127.0.0.1, http://localhost or http://[::1]")
	}
	if u.Path == "" {
		u.Path = "/"
	}
	return u, nil
}

// lead returns an address that leads the browser of this user to a page, once.
func (r *receiver) lead(page string) string {
	r.opening.leads(page)
	return "http://" + r.listener.Addr().String() + r.opening.path
}

// serve serves the browser until stop.
func (r *receiver) serve() {
	var both sync.WaitGroup
	if r.beside != nil {
		both.Go(func() { _ = r.server.Serve(r.beside) }) // it ends by stop
	}
	_ = r.server.Serve(r.listener) // the same
	both.Wait()
}

// stop ends the answers to the browser that are under way within a second, and closes the listener.
func (r *receiver) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if r.server.Shutdown(ctx) != nil {
		_ = r.server.Close() // nothing else can be done
	}
	_ = r.listener.Close() // if it was never served
	if r.beside != nil {
		_ = r.beside.Close() // the same
	}
}

// page answers the browser.
type page struct {
	path    string
	takes   func(answer) error
	opening *opening
}

// ServeHTTP implements http.Handler.
func (p page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	h.Set("Connection", "close")
	text, status := "Orla has the answer. Go back to the terminal; this page can be closed.", http.StatusOK
	switch {
	case r.URL.Path == p.opening.path && r.Method == http.MethodGet:
		page, why := p.opening.take(r)
		if page != "" {
			h.Set("Location", page)
			w.WriteHeader(http.StatusSeeOther)
			return
		}
		text, status = why, http.StatusGone
	case r.URL.Path != p.path:
		text, status = "There is nothing here.", http.StatusNotFound
	case r.Method != http.MethodGet:
		h.Set("Allow", http.MethodGet)
		text, status = "Only GET is allowed.", http.StatusMethodNotAllowed
	default:
		if err := p.takes(answer{r.URL.Query()}); err != nil {
			text, status = "This is not the answer to the login that Orla waits for. Go back to the terminal.", http.StatusBadRequest
		}
	}
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<!doctype html><title>Orla</title><p>%s</p>\n", text) // who has asked may be gone
}
