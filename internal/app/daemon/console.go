package daemon

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"unicode/utf8"

	"github.com/orla-project/orla/internal/app/config"
	"github.com/orla-project/orla/internal/app/control"
	"github.com/orla-project/orla/internal/app/listen"
	"github.com/orla-project/orla/internal/console"
	"github.com/orla-project/orla/supervisor"
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

// maxManifest bounds the file of a tool that is shown, in bytes.
const maxManifest = 256 << 10

// Manifest implements control.Backend.
func (o operations) Manifest(name string) (control.Manifest, error) {
	served := o.Supervisor.Manifests()
	i := slices.IndexFunc(served, func(one supervisor.Served) bool { return one.Tool.Name == name })
	if i < 0 {
		return control.Manifest{}, o.unknown(name)
	}
	source := config.Absolute(served[i].Tool.Source)
	text, err := config.ReadRegular(source, maxManifest+1)
	switch {
	case err != nil:
		return control.Manifest{}, &control.Error{Code: control.CodeRefused, Message: err.Error()}
	case len(text) > maxManifest || !utf8.Valid(text):
		return control.Manifest{}, &control.Error{Code: control.CodeRefused, Message: source + " is not a text of at most 256 KiB"}
	}
	return control.Manifest{Source: source, Text: string(text)}, nil
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
