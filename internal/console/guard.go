package console

import (
	"encoding/json"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// refusal is the answer to a request that is not let in. It has the form of an error of the control API.
type refusal struct {
	status int
	Code   string `json:"code"`
	Text   string `json:"message"`
	Hint   string `json:"hint,omitempty"`
}

// codes are the codes of refusals, by status.
var codes = map[int]string{
	http.StatusBadRequest: "bad_request", http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden", http.StatusNotFound: "not_found",
	http.StatusMethodNotAllowed: "method_not_allowed", http.StatusUnsupportedMediaType: "bad_request", http.StatusTooManyRequests: "refused",
}

func (r *refusal) send(w http.ResponseWriter) {
	r.Code = codes[r.status]
	if r.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", "GET, POST")
	}
	answer(w, r.status, r)
}

func refuse(w http.ResponseWriter, status int, text, hint string) {
	(&refusal{status: status, Text: text, Hint: hint}).send(w)
}

// answer writes a JSON value.
func answer(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // texts and numbers
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the client has left
}

// policy is the Content-Security-Policy. With Trusted Types and no policy of them, text can only become text.
const policy = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// secure sets the headers of every answer.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// foreign returns why a request is not let in, whoever makes it: it does not come to a loopback address by one
// of its names, nor by a name that the page has elsewhere, another page makes it, or it has not the form that the
// page's requests have; nil if all is well.
func (c *Console) foreign(r *http.Request) *refusal {
	invited := c.doors.Load().invited(r.Host)
	switch {
	case !ownMachine(r) && !invited:
		return &refusal{status: http.StatusForbidden, Text: "the console is for the machine that Orla runs on, on a loopback address", Hint: "ssh -L makes the page of another machine local; with tokens, allowed_hosts names where else it is served"}
	case !loopbackName(r.Host) && !invited:
		return &refusal{status: http.StatusForbidden, Text: "the Host header is not a name of this machine's loopback", Hint: "use localhost or 127.0.0.1; with tokens, allowed_hosts names others"}
	case r.Header["Upgrade"] != nil:
		return &refusal{status: http.StatusBadRequest, Text: "nothing is upgraded here"}
	case !ownOrigin(r):
		return &refusal{status: http.StatusForbidden, Text: "another page may not use the console"}
	}
	switch r.Method {
	case http.MethodGet:
	case http.MethodHead:
		if strings.HasPrefix(r.URL.Path, "/api/") {
			return &refusal{status: http.StatusMethodNotAllowed, Text: "the console takes GET and POST"}
		}
	case http.MethodPost:
		media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		switch {
		case len(r.Header["Origin"]) == 0:
			return &refusal{status: http.StatusForbidden, Text: "a change needs the Origin of the page"}
		case err != nil || media != "application/json" || len(r.Header["Content-Type"]) != 1:
			return &refusal{status: http.StatusUnsupportedMediaType, Text: "Content-Type must be application/json"}
		}
	default:
		return &refusal{status: http.StatusMethodNotAllowed, Text: "the console takes GET and POST"}
	}
	return nil
}

// ownMachine reports whether a request came to a loopback address.
func ownMachine(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// loopbackName reports whether a Host header is localhost or a loopback address, with any port.
func loopbackName(host string) bool {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, "80"
		if inner, ok := strings.CutPrefix(host, "["); ok {
			name = strings.TrimSuffix(inner, "]")
		}
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return false
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	at, err := netip.ParseAddr(name)
	return err == nil && at.Zone() == "" && at.Unmap().IsLoopback()
}

// ownOrigin reports whether no other page makes a request. A browser says so by Origin, or by Sec-Fetch-Site. A person
// may follow a link from elsewhere to a document.
func ownOrigin(r *http.Request) bool {
	switch origins := r.Header["Origin"]; {
	case len(origins) == 0:
	case len(origins) > 1:
		return false
	case strings.EqualFold(origins[0], "http://"+r.Host):
	case isLocal(r) || !strings.EqualFold(origins[0], "https://"+r.Host): // a proxy has the TLS
		return false
	}
	switch site := r.Header["Sec-Fetch-Site"]; {
	case len(site) == 0:
		return true
	case len(site) > 1:
		return false
	case site[0] == "same-origin", site[0] == "none":
		return true
	}
	document := r.URL.Path == "/" || r.URL.Path == loginPath
	return document && r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
}
