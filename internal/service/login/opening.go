package login

import (
	"crypto/rand"
	"net/http"
	"net/netip"
	"os"
	"sync"
)

// opening leads the browser of this user to the page of the issuer, once. The address of that page has the state of
// the login, and what starts a browser has the address that it opens in its arguments, which other users can read.
// So a browser gets an address of Orla's own, which says nothing and is good once, for this user and for root.
type opening struct {
	path string

	mu   sync.Mutex // guards the fields that follow
	page string     // "" before it is known
	used bool
}

func newOpening() *opening { return &opening{path: "/open-" + rand.Text()} }

// leads makes it lead to a page.
func (o *opening) leads(page string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.page = page
}

// take returns the page for a request; "" if it does not get it, and why.
func (o *opening) take(r *http.Request) (page, why string) {
	if !ours(r) {
		return "", "This address is for another user of this machine."
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.page == "" || o.used {
		return "", "This address is good once, and somebody has opened it. If that was not you, stop the login in the terminal. If it was, open the address that the terminal shows."
	}
	o.used = true
	return o.page, ""
}

// ours reports whether a request on this machine is of this user or of root, as far as that can be known.
func ours(r *http.Request) bool {
	local, isLocal := r.Context().Value(http.LocalAddrContextKey).(interface{ String() string })
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if !isLocal || err != nil {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return false
	}
	uid, known := ownerOf(remote, at)
	return !known || uid == os.Geteuid() || uid == 0
}
