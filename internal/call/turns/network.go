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

// NetworkOf returns the network of an address with a port, as a connection has it; "" for anything else, such as a unix socket, so that
// all of these are one network.
func NetworkOf(remote string) string {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	return Network(at.Addr()).String()
}
