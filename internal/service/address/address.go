// Package address knows the addresses that no tool may reach, whatever the configuration allows: the
// dialer refuses them, and manifests that name them are invalid. It also checks the URLs of
// services. It makes no DNS requests.
package address

import (
	"net/netip"
	"strconv"
	"strings"

	"code.dny.dev/ssrf"
)

// metadata are the metadata services of clouds, which reveal the secrets of a machine to every
// process on it. Most of them have link-local addresses, which are refused anyway.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
}

// metadataNames are the host names of such services.
var metadataNames = map[string]bool{
	"metadata.google.internal":   true,
	"metadata.goog":              true,
	"instance-data.ec2.internal": true,
	"metadata.tencentyun.com":    true,
}

var (
	sharedSpace = netip.MustParsePrefix("100.64.0.0/10") // carrier-grade NAT (RFC 6598), also used by private networks
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	linkLocal   = netip.MustParsePrefix("169.254.0.0/16")
	special     = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())
)

// Plain normalizes an address: IPv4 addresses inside IPv6 become IPv4, and zones are removed.
func Plain(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) { // a NAT64 gateway translates it to the IPv4 address inside
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

// IsPrivate reports whether an address belongs to a private network.
func IsPrivate(addr netip.Addr) bool { return addr.IsPrivate() || sharedSpace.Contains(addr) }

// Forbidden describes an address that no tool may reach; "" for other addresses. addr must be Plain.
func Forbidden(addr netip.Addr) string {
	for _, prefix := range metadata {
		if prefix.Contains(addr) {
			return "a metadata service"
		}
	}
	switch {
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsLoopback(), IsPrivate(addr):
		return ""
	case special.SafeAddr(addr) != nil:
		return "special"
	}
	return ""
}

// forbiddenHost is Forbidden for the host of a URL. It understands addresses in forms that only some
// resolvers accept: a single number, octal or hexadecimal. It returns "" for a name that needs DNS.
func forbiddenHost(host string) string {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if metadataNames[host] {
		return "a metadata service"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		var ok bool
		if addr, ok = numeric(host); !ok {
			return ""
		}
	}
	addr = Plain(addr)
	if linkLocal.Contains(addr) {
		return "link-local, as metadata services are"
	}
	return Forbidden(addr)
}

// numeric parses an IPv4 address as inet_aton does: one to four numbers, decimal, octal (0…) or
// hexadecimal (0x…); the last one fills the remaining bytes.
func numeric(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	const most = 4
	if len(parts) > most {
		return netip.Addr{}, false
	}
	var whole uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (most - i)
		}
		n, err := strconv.ParseUint(part, 0, bits)
		if err != nil || strings.Contains(part, "_") || strings.HasPrefix(part, "0b") || strings.HasPrefix(part, "0o") {
			return netip.Addr{}, false
		}
		whole = whole<<bits | n
	}
	return netip.AddrFrom4([4]byte{byte(whole >> 24), byte(whole >> 16), byte(whole >> 8), byte(whole)}), true
}
