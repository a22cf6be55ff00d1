package outbound

import (
	"context"
	"fmt"
	"net"
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

// class is how many can reach an address: the higher, the more.
type class int32

// The classes of addresses. An address that no policy allows has none.
const (
	classLoopback class = iota // also where a request may lead anywhere that the policy allows
	classPrivate
	classPublic
)

var classNames = [...]string{classLoopback: "loopback", classPrivate: "private", classPublic: "public"}

// classOf is the class of an address that needs a policy to be reached.
func classOf(needs Private) class {
	switch needs {
	case PrivateAll:
		return classPrivate
	case PrivateNone:
		return classPublic
	}
	return classLoopback
}

// blocked is why an address is not dialled.
type blocked struct {
	addr netip.Addr
	what string  // what the address is
	set  Private // the policy that would allow it; "" if none would
	is   Private // the policy
	from class   // of the address that redirects here, which is why; classLoopback for another reason
}

func (b *blocked) Error() string {
	if b.from != classLoopback {
		return fmt.Sprintf("the address %s is %s, and a %s address redirects to it, which may lead to no less public one", b.addr, b.what, classNames[b.from])
	}
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

// classifier tells what an address is, and the least policy that allows it; "" if
// none does.
type classifier func(netip.Addr) (what string, needs Private)

// guard refuses connections to addresses that private and far (Options.Far) do
// not allow, and to those that are less public than floor. A dialer calls it
// after names were resolved, with the address that it is about to use.
func (is classifier) guard(private Private, far bool, floor class) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%q is no address of a service", address)
		}
		if b := is.check(at.Addr(), private, far); b != nil {
			return b
		}
		if what, needs := is(at.Addr()); classOf(needs) < floor {
			return &blocked{addr: at.Addr(), what: what, from: floor}
		}
		return nil
	}
}

// class is that of the other end of a connection. What cannot be told is public.
func (is classifier) class(remote net.Addr) class {
	at, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return classPublic
	}
	_, needs := is(at.Addr())
	return classOf(needs)
}

// check returns why addr may not be reached, or nil.
func (is classifier) check(addr netip.Addr, private Private, far bool) *blocked {
	what, needs := is(addr)
	if far && needs == PrivateLoopback {
		needs = PrivateAll
	}
	allowed := needs == PrivateNone || needs == private || needs == PrivateLoopback && private == PrivateAll
	if allowed {
		return nil
	}
	return &blocked{addr: addr, what: what, set: needs, is: private}
}

// classify is the classifier of the addresses that there are.
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
