package outbound

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"
)

// Private says which addresses that are not public may be reached. Link-local
// addresses, those that tell a machine of the cloud its secrets, and those that
// are nobody's are never reached.
type Private string

// The values of allow_private_endpoints.
const (
	PrivateNone     Private = "none"     // public addresses alone
	PrivateLoopback Private = "loopback" // this machine as well
	PrivateAll      Private = "all"      // and private networks
)

// Values lists what allow_private_endpoints may be.
func (Private) Values() []string {
	return []string{string(PrivateNone), string(PrivateLoopback), string(PrivateAll)}
}

// blocked is why an address is not dialled.
type blocked struct {
	addr netip.Addr
	what string  // what the address is
	set  Private // the policy that would allow it; "" if none would
	is   Private // the policy
}

func (b *blocked) Error() string {
	if b.set == "" {
		return fmt.Sprintf("the address %s is %s, which no tool may reach", b.addr, b.what)
	}
	return fmt.Sprintf("the address %s is %s, and allow_private_endpoints is %q; %q would allow it", b.addr, b.what, b.is, b.set)
}

// metadata are services that tell whoever asks them the secrets of a machine in
// a cloud. Most have link-local addresses, which are refused as such.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),          // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
	netip.MustParsePrefix("fd00:42::42/128"),        // Scaleway
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure
}

var (
	sharedSpace = netip.MustParsePrefix("100.64.0.0/10") // of carriers, and of some private networks
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	special     = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork())
)

// guard refuses connections to addresses that private and far (Options.Far) do
// not allow. A dialer
// calls it after names were resolved, with the address that it is about to use.
func guard(private Private, far bool) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%q is no address of a service", address)
		}
		if b := check(at.Addr(), private, far); b != nil {
			return b
		}
		return nil
	}
}

// check returns why addr may not be reached, or nil.
func check(addr netip.Addr, private Private, far bool) *blocked {
	what, needs := classify(addr)
	if far && needs == PrivateLoopback {
		needs = PrivateAll
	}
	allowed := needs == PrivateNone || needs == private || needs == PrivateLoopback && private == PrivateAll
	if allowed {
		return nil
	}
	return &blocked{addr: addr, what: what, set: needs, is: private}
}

// classify tells what an address is, and the least policy that allows it; "" if
// none does.
func classify(addr netip.Addr) (what string, needs Private) {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) { // a gateway makes it the IPv4 address that it holds
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	for _, prefix := range metadata {
		if prefix.Contains(addr) {
			return "a metadata service", ""
		}
	}
	switch {
	case addr.IsLinkLocalUnicast():
		return "link-local", ""
	case addr.IsLoopback():
		return "loopback", PrivateLoopback
	case addr.IsPrivate(), sharedSpace.Contains(addr):
		return "private", PrivateAll
	case special.SafeAddr(addr) != nil:
		return "special", ""
	}
	return "public", PrivateNone
}
