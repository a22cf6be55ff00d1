package turns

import "net/netip"

// Network is what counts as one address where addresses share something. A client that
// has an IPv6 address has all addresses of its network.
func Network(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is4() {
		return addr
	}
	const network = 64 // bits
	return netip.PrefixFrom(addr.WithZone(""), network).Masked().Addr()
}
