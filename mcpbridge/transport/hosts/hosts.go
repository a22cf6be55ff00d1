// Package hosts compares the Host and Origin headers of requests with the names that a server has.
package hosts

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Allowed reports whether a Host header names this server: localhost, an IP address, the name of this machine, or one of the
// others, as Entry returns them. With loopback only this machine's own addresses count. This stops DNS rebinding, in which
// an attacker's name resolves to this machine.
func Allowed(host string, others []string, loopback bool) bool {
	name, port := Bare(host)
	if _, err := strconv.ParseUint(port, 10, 16); port != "" && err != nil {
		return false
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	if err == nil && (!loopback || addr.Unmap().IsLoopback()) {
		return true
	}
	if len(others) > 0 && (slices.Contains(others, Entry(name, "")) || slices.Contains(others, Entry(name, port))) {
		return true
	}
	if loopback {
		return false
	}
	own, err := os.Hostname()
	return err == nil && strings.EqualFold(own, name)
}

// Bare returns a host in lower case, without brackets and a final dot, and its port; "" for
// none.
func Bare(host string) (name, port string) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), ".")), port
}

// Entry returns a host, and its port if it has one, in the form in which allowed hosts are
// compared.
func Entry(name, port string) string {
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.String()
	}
	if port == "" {
		return name
	}
	return net.JoinHostPort(name, port)
}

// OriginName returns an allowed origin as browsers send it: without the default port of its
// scheme.
func OriginName(origin string) string {
	u, err := url.Parse(origin)
	if err != nil {
		return origin
	}
	name, port := u.Hostname(), u.Port()
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.String()
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port != "" && (u.Scheme != "https" || port != "443") && (u.Scheme != "http" || port != "80") {
		name += ":" + port
	}
	return u.Scheme + "://" + name
}

// OriginAllowed reports whether a request does not come from a web page, or comes from a page of this server or of an allowed
// origin.
func OriginAllowed(r *http.Request, allowed []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		return site != "cross-site" && site != "same-site"
	}
	if containsFold(allowed, origin) {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// FromThisMachine reports whether a request came to an address that other machines cannot reach. Its listener may be older than
// the settings.
func FromThisMachine(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return true // a recorder in a test
	}
	at, ok := local.(*net.TCPAddr)
	return !ok || at.IP.IsLoopback() // else a unix socket
}

// containsFold reports whether a list has a text, whatever the case of letters.
func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(e string) bool { return strings.EqualFold(e, s) })
}

// AllowCORS lets the page of an allowed origin read the answer.
func AllowCORS(w http.ResponseWriter, origin string) {
	w.Header().Set("Access-Control-Allow-Origin", origin)
	w.Header().Add("Vary", "Origin")
	w.Header().Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
}

// mcpHeaders are the request headers that a client in a browser needs. Those of tool parameters
// are added, by their prefix.
const mcpHeaders = "Accept, Authorization, Content-Type, Last-Event-ID, Mcp-Method, Mcp-Name, Mcp-Protocol-Version, Mcp-Session-Id"

// Preflight answers the CORS preflight request of an allowed origin.
func Preflight(w http.ResponseWriter, r *http.Request) {
	allowed := []string{mcpHeaders}
	for asked := range strings.SplitSeq(r.Header.Get("Access-Control-Request-Headers"), ",") {
		if asked = strings.TrimSpace(asked); strings.HasPrefix(strings.ToLower(asked), "mcp-param-") {
			allowed = append(allowed, asked)
		}
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
	w.Header().Set("Access-Control-Allow-Headers", strings.Join(allowed, ", "))
	w.Header().Set("Access-Control-Max-Age", "600")
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		w.Header().Set("Access-Control-Allow-Private-Network", "true")
	}
	w.WriteHeader(http.StatusNoContent)
}
