package daemon

import (
	"context"
	"net"
	"net/netip"
	"net/url"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/console"
)

// serveConsole adds the web page to the HTTP front.
func (s *server) serveConsole(cfg *config.Loaded) {
	s.page = console.New(console.Options{
		API: s.control.PageAPI(), Instance: control.Name(cfg.Folder()), Log: s.log.Logger,
		Admitted:    func(ctx context.Context) { listen.Admitted(ctx, control.Page) },
		HeadersRead: listen.HeadersRead,
	})
	s.page.Turn(cfg.Console == config.ConsoleOn)
	for _, pattern := range console.Patterns() {
		s.http.Handle(pattern, s.page)
	}
}

// ConsoleLink implements control.Backend.
func (o operations) ConsoleLink() (control.ConsoleLink, error) {
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
	path, until := o.page.Link()
	return control.ConsoleLink{URL: base + path, Expires: until}, nil
}

// consoleAddress returns where this machine reaches the page of an Orla with an address; "" if it does not.
func consoleAddress(at string) string {
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "http" {
		return ""
	}
	addr, err := netip.ParseAddr(u.Hostname())
	switch {
	case err != nil:
		return ""
	case addr.IsUnspecified():
		return "http://" + net.JoinHostPort("127.0.0.1", u.Port())
	case !addr.Unmap().IsLoopback():
		return ""
	}
	return "http://" + u.Host
}
