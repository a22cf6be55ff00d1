package address

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// CheckURL checks the http or https URL of a service. The error repeats none of it,
// since there may be a password in what is no URL.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return errors.New("is no URL; write it as https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be a URL that begins with http:// or https://")
	case u.User != nil:
		return errors.New("must hold no user and no password: auth is for these")
	case u.Hostname() == "":
		return errors.New("names no host; write it as https://host/path")
	case strings.Contains(text, "#"):
		return errors.New("must hold no fragment (#), which no server would see")
	}
	return CheckDialled(u)
}

// CheckDialled is CheckHost for the URL of a service, which must not be where no tool
// may ever reach, as far as that can be told without looking it up.
func CheckDialled(u *url.URL) error {
	if err := CheckHost(u); err != nil {
		return err
	}
	if what := ForbiddenHost(u.Hostname()); what != "" {
		return fmt.Errorf("leads to an address that is %s, which no tool may reach", what)
	}
	return nil
}

// CheckHost checks what url.Parse leaves unchecked of a URL's host and port: that
// they can be dialled. The error repeats none of them.
func CheckHost(u *url.URL) error {
	switch n, err := strconv.Atoi(u.Port()); {
	case u.Port() != "" && (err != nil || n < 1 || n > 65535):
		return errors.New("has a port that is none: 1 to 65535")
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return errors.New("has a colon in its host; an IPv6 address is written in brackets, as in [::1]:443")
	case !strings.HasPrefix(u.Host, "[") && !nameable(u.Hostname()):
		return errors.New("has a host that no name and no address can be: letters, digits, - and _ between dots, 63 a part at most")
	}
	return nil
}

// nameable reports whether a host can be looked up: package net refuses others
// before it asks anybody. What is not ASCII is a name all the same, in another form.
func nameable(host string) bool {
	host = strings.TrimSuffix(host, ".")
	odd := func(r rune) bool {
		return r < utf8.RuneSelf && !isLetterOrDigit(r) && !strings.ContainsRune("_.-", r) || r >= utf8.RuneSelf && !unicode.IsPrint(r)
	}
	for part := range strings.SplitSeq(host, ".") {
		if part == "" || len(part) > 63 && isASCII(part) || part[0] == '-' || part[len(part)-1] == '-' || strings.ContainsFunc(part, odd) {
			return false
		}
	}
	return len(host) <= 253 || !isASCII(host)
}

func isLetterOrDigit(r rune) bool {
	return r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}
