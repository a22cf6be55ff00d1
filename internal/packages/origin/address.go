package origin

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const maxURL = 2048

var (
	// shorthand is the form of ssh that has no scheme: git@example.com:owner/repository.
	shorthand = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9][A-Za-z0-9.-]*:[^:-][^:]*$`)
	})

	// hostForm and userForm have no characters that mean something to a shell: with a ProxyCommand or Match exec in its settings, an
	// older ssh gives them to one. Nor have they letters that look like others: names with those have a form of ASCII, xn--.
	hostForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]*|[0-9a-fA-F:.]+(%[A-Za-z0-9._-]+)?)$`)
	})
	userForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`) })

	tagForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]*(/[A-Za-z0-9][A-Za-z0-9._+-]*)*$`)
	})
	commitForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`) })
)

// CheckURL returns why a repository at a URL is not fetched, or nil. https and ssh are accepted from anywhere;
// http and git only from this machine, since everybody on the way could exchange what they bring;
// file only if local is set, since git reads the configuration of a repository on this machine.
func CheckURL(text string, local bool) error {
	_, err := scheme(text, local)
	return err
}

// scheme returns the protocol of a URL that is accepted, by git's name for it.
func scheme(text string, local bool) (string, error) {
	switch {
	case text == "", len(text) > maxURL:
		return "", fmt.Errorf("the URL of the repository is empty or has over %d bytes", maxURL)
	case text[0] == '-', !printable(text), strings.ContainsAny(text, " \t"):
		return "", errors.New("the URL of the repository has characters that are not allowed")
	case !strings.Contains(text, "://"):
		if shorthand().MatchString(text) {
			return "ssh", nil
		}
		return "", fmt.Errorf("%s is not the URL of a git repository", quoted(text))
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("the URL of the repository cannot be parsed")
	}
	if _, has := u.User.Password(); has || u.User != nil && u.Scheme != "ssh" {
		return "", errors.New("the URL of the repository has a user or a password, which others could see; git also reads ~/.netrc")
	}
	host := u.Hostname()
	switch {
	case u.RawQuery != "" || u.Fragment != "":
		return "", errors.New("the URL of the repository has a query or a fragment")
	case u.Scheme == "file" && local && host == "" && u.User == nil:
		return "file", nil
	case u.Scheme == "file":
		return "", errors.New("a repository on this machine is only read if that is asked for")
	case !hostForm().MatchString(host) || u.User != nil && !userForm().MatchString(u.User.Username()) || strings.HasPrefix(u.Path, "/-"):
		return "", errors.New("the URL of the repository has no valid host, user or path; a host has letters of ASCII, digits and . _ - alone")
	case u.Scheme == "https" || u.Scheme == "ssh":
		return u.Scheme, nil
	case u.Scheme != "http" && u.Scheme != "git":
		return "", fmt.Errorf("repositories are fetched by https and ssh, and not by %s", quoted(u.Scheme))
	case !Loopback(host):
		return "", fmt.Errorf("%s is not encrypted, and only accepted from this machine: use https", u.Scheme)
	}
	return u.Scheme, nil
}

// Loopback reports whether a host of a URL is this machine.
func Loopback(host string) bool {
	if address, err := netip.ParseAddr(host); err == nil {
		return address.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

// OnThisMachine reports whether a URL names a repository or a service on this machine.
func OnThisMachine(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" && u.Scheme != "file" {
		host, _, _ := strings.Cut(text[strings.Index(text, "@")+1:], ":")
		return Loopback(host)
	}
	if host, _, err := net.SplitHostPort(u.Host); err == nil {
		return Loopback(host)
	}
	return u.Scheme == "file" || Loopback(u.Hostname())
}

// MayBeThisMachine reports whether a URL names a service on this machine in any spelling, or one that only the network next to it has: it
// is for refusing what others name. A name that an own server of names says is this machine is not seen.
func MayBeThisMachine(text string) bool {
	host, _, _ := strings.Cut(text[strings.Index(text, "@")+1:], ":")
	if u, err := url.Parse(text); err == nil && u.Scheme != "" && (u.Host != "" || u.Scheme == "file") {
		if host = u.Hostname(); u.Scheme == "file" {
			return true
		}
	}
	host = strings.ToLower(strings.TrimRight(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	if address, err := netip.ParseAddr(host); err == nil {
		return near(address)
	}
	if last != "" && last[0] >= '0' && last[0] <= '9' {
		return true // another form of an address of IPv4, which nobody needs
	}
	return last == "localhost" || last == "localdomain" || slices.Contains([]string{"", "localhost6", "ip6-localhost", "ip6-loopback"}, host)
}

// near reports whether an address is one of this machine, or of the network next to it.
func near(address netip.Addr) bool {
	address = address.Unmap().WithZone("")
	if address.IsLoopback() || address.IsUnspecified() || address.IsLinkLocalUnicast() || address.IsMulticast() {
		return true
	}
	if bytes := address.As16(); address.Is6() && [12]byte(bytes[:12]) == [12]byte{} {
		return true // an old form of an address of IPv4
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == address
	})
}

// checkRef returns why a name is neither that of a tag nor a commit, or nil.
func checkRef(ref string) error {
	switch {
	case commitForm().MatchString(ref):
		return nil
	case len(ref) > maxName, !tagForm().MatchString(ref), strings.Contains(ref, ".."), strings.HasSuffix(ref, "."), strings.Contains(ref+"/", ".lock/"):
		return fmt.Errorf("%s is neither the name of a tag nor a full commit", quoted(ref))
	}
	return nil
}
