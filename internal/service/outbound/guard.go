package outbound

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/orla-project/orla/internal/service/address"
)

// Private says which addresses that are not public may be reached. Link-local addresses, cloud
// metadata services and unassigned addresses are never reached.
type Private string

// The values of allow_private_endpoints.
const (
	PrivateNone     Private = "none"     // only public addresses
	PrivateLoopback Private = "loopback" // also this machine
	PrivateAll      Private = "all"      // also private networks
)

// Values lists the values of allow_private_endpoints.
func (Private) Values() []string {
	return []string{string(PrivateNone), string(PrivateLoopback), string(PrivateAll)}
}

// class says how public an address is: a higher class can be reached by more.
type class int32

// The classes of addresses. An address that no policy allows has no class.
const (
	classLoopback class = iota // as a floor: a request may lead to any address that the policy allows
	classPrivate
	classPublic
)

var classNames = [...]string{classLoopback: "loopback", classPrivate: "private", classPublic: "public"}

// classOf returns the class of an address that needs a policy to be reached.
func classOf(needs Private) class {
	switch needs {
	case PrivateAll:
		return classPrivate
	case PrivateNone:
		return classPublic
	case PrivateLoopback:
	}
	return classLoopback
}

// blocked is the error for an address that must not be dialled.
type blocked struct {
	addr netip.Addr
	what string  // a description of the address
	set  Private // the policy that would allow it; "" if none would
	is   Private // the policy in effect
	from class   // of the address that led here, if that is the reason; else classLoopback
}

func (b *blocked) Error() string {
	if b.from != classLoopback {
		return fmt.Sprintf("the address %s is %s, and a %s address leads to it, which may lead to no less public one", b.addr, b.what, classNames[b.from])
	}
	if b.set == "" {
		return fmt.Sprintf("the address %s is %s, which no tool may reach", b.addr, b.what)
	}
	return fmt.Sprintf("the address %s is %s, and allow_private_endpoints is %q; %q would allow it", b.addr, b.what, b.is, b.set)
}

// classifier describes an address, and returns the strictest policy that allows it; "" if none does.
type classifier func(netip.Addr) (what string, needs Private)

// guard returns a control function for a dialer. It refuses connections to addresses that private
// and far (Options.Far) do not allow, and to those that are less public than floor. The dialer calls
// it after name resolution, with the address that it is about to use.
func (is classifier) guard(private Private, far bool, floor class) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, dialled string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(dialled)
		if err != nil {
			return fmt.Errorf("%q is not the address of a service", dialled)
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

// class returns the class of a connection's remote address. An unknown address counts as public.
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

// classify is the classifier that is used outside of tests.
func classify(addr netip.Addr) (what string, needs Private) {
	addr = address.Plain(addr)
	switch what := address.Forbidden(addr); {
	case what != "":
		return what, ""
	case addr.IsLoopback():
		return "loopback", PrivateLoopback
	case address.IsPrivate(addr):
		return "private", PrivateAll
	}
	return "public", PrivateNone
}
