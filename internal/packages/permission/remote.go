package permission

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

// RemoteOf is the permission that an McpServer needs whose endpoint is elsewhere.
func RemoteOf(endpoint string) (Permission, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" {
		return Permission{}, errors.New("the endpoint of the server is not a URL with a host")
	}
	p := Permission{Remote, strings.ToLower(u.Host)}
	return p, p.check()
}

// near are last parts of names that lead to this machine or to a local network.
var near = []string{"localhost", "localdomain", "local", "internal", "intranet", "lan", "home", "corp", "private", "arpa", "invalid", "test"}

// Near reports whether the host of a remote server may be this machine, or in a local network: it is an address in any form,
// a name of one part, or below a name that public networks do not have. Where a public name leads is not looked up.
func (p Permission) Near() bool {
	name, _, _ := strings.Cut(p.Target, ":")
	last := name[strings.LastIndex(name, ".")+1:]
	isAddress := strings.HasPrefix(last, "0x") || !strings.ContainsFunc(last, func(c rune) bool { return c < '0' || c > '9' })
	return last == name || isAddress || slices.Contains(near, last)
}
