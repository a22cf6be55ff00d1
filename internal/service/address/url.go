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

// CheckURL checks the http or https URL of a service. The error does not repeat the text, since an
// invalid URL may contain a password.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }):
		return errors.New("is not a URL; write it as https://host/path")
	case u.Scheme != "http" && u.Scheme != "https":
		return errors.New("must be a URL that begins with http:// or https://")
	case u.User != nil:
		return errors.New("must not have a user or a password: use auth")
	case u.Hostname() == "":
		return errors.New("names no host; write it as https://host/path")
	case strings.Contains(text, "#"):
		return errors.New("must not have a fragment (#), which is never sent")
	}
	return CheckDialled(u)
}

// CheckDialled is CheckHost for the URL of a service. It also refuses hosts that no tool may reach,
// as far as that is known without DNS.
func CheckDialled(u *url.URL) error {
	if err := CheckHost(u); err != nil {
		return err
	}
	if what := forbiddenHost(u.Hostname()); what != "" {
		return fmt.Errorf("leads to an address that is %s, which no tool may reach", what)
	}
	return nil
}

// CheckHost checks what url.Parse does not: whether the host and port of a URL can be dialled. The
// error does not repeat them.
func CheckHost(u *url.URL) error {
	switch n, err := strconv.Atoi(u.Port()); {
	case u.Port() != "" && (err != nil || n < 1 || n > 65535):
		return errors.New("has an invalid port: it must be 1 to 65535")
	case strings.Contains(u.Hostname(), ":") && !strings.HasPrefix(u.Host, "["):
		return errors.New("has a colon in its host; an IPv6 address is written in brackets, as in [::1]:443")
	case !strings.HasPrefix(u.Host, "[") && !nameable(u.Hostname()):
		return errors.New("has an invalid host: a name has letters, digits, - and _ between dots, at most 63 in each part")
	}
	return nil
}

// nameable reports whether package net would look a host up; it refuses other names. A name that is
// not ASCII is valid in its ASCII form.
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
