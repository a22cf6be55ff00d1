package listen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// localAddresses are where browsers look for localhost.
func localAddresses() []netip.Addr {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
}

// HoldLocalhost makes localhost, with the port of this server, lead to it alone, for as long as it listens on that port:
// it serves on [::1] too, where browsers look for localhost first. The error says why somebody else could be there. It
// may be called again.
func (w *Server) HoldLocalhost(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	main := w.mainLocked()
	switch {
	case w.stopping || main == nil:
		return errors.New("this server is stopping")
	case main.Addr().Network() == "unix":
		return errors.New("it listens on a unix socket")
	}
	port := portOf(main)
	if !w.listensLocked(localAddresses()[0], port) {
		return fmt.Errorf("it does not listen on 127.0.0.1:%d", port)
	}
	if w.listensLocked(netip.IPv6Loopback(), port) {
		return nil
	}
	var config net.ListenConfig
	address := net.JoinHostPort("::1", strconv.Itoa(int(port)))
	l, err := config.Listen(ctx, "tcp6", address)
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT):
		return nil // this machine has no ::1, for nobody
	case err != nil:
		return listenError(address, err)
	}
	w.beside = w.serve(l)
	return nil
}

// Owns returns why a page with an origin may be one of another program of this machine; nil if it is of this server, or of
// another machine.
func (w *Server) Owns(ctx context.Context, origin string) error {
	page, err := url.Parse(origin)
	if err != nil {
		return err
	}
	name, port := strings.TrimSuffix(page.Hostname(), "."), cmp.Or(page.Port(), map[string]string{"https": "443"}[page.Scheme], "80")
	at, _ := netip.ParseAddr(name) // a name is not an address
	local := strings.EqualFold(name, "localhost")
	if !local && !at.Unmap().IsLoopback() {
		return nil
	}
	w.mu.Lock()
	own := uint16(0)
	if main := w.mainLocked(); main != nil {
		own = portOf(main)
	}
	serves := local || w.listensLocked(at.Unmap(), own)
	w.mu.Unlock()
	switch {
	case strconv.Itoa(int(own)) != port:
		return fmt.Errorf("this page has another port than Orla, which may be that of another program; Orla listens on port %d of localhost, and ssh -L %[1]d:localhost:%[1]d keeps it", own)
	case !serves:
		return fmt.Errorf("another program could be at %s, where Orla does not listen", page.Host)
	case local:
		if err := w.HoldLocalhost(ctx); err != nil {
			return fmt.Errorf("another program could be at localhost: %w", err)
		}
	}
	return nil
}

// listensLocked reports whether the server listens on an address. A wildcard of IPv6 is one of IPv4 too.
func (w *Server) listensLocked(at netip.Addr, port uint16) bool {
	return slices.ContainsFunc(w.listenersLocked(), func(l net.Listener) bool {
		own, err := netip.ParseAddrPort(l.Addr().String())
		ip := own.Addr().Unmap()
		return err == nil && own.Port() == port && (ip == at || ip == netip.IPv6Unspecified() || ip.IsUnspecified() && at.Is4())
	})
}

// mainLocked returns the socket of the server's URL; nil for none.
func (w *Server) mainLocked() net.Listener {
	if w.current == nil && len(w.given) > 0 {
		return w.given[0]
	}
	return w.current
}

// listenersLocked returns all sockets that it listens on.
func (w *Server) listenersLocked() []net.Listener {
	all := slices.Concat(w.given, []net.Listener{w.current, w.beside})
	return slices.DeleteFunc(all, func(l net.Listener) bool { return l == nil })
}

func portOf(l net.Listener) uint16 {
	at, err := netip.ParseAddrPort(l.Addr().String())
	if err != nil { // a unix socket
		return 0
	}
	return at.Port()
}
