package turns

import "net/netip"

// Network returns what an address counts as when addresses share something: an IPv6 address
// counts as its /64 network, since a client that has one address can use all of them.
func Network(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is4() || addr.IsLoopback() {
		return addr
	}
	const bits = 64
	return netip.PrefixFrom(addr.WithZone(""), bits).Masked().Addr()
}
