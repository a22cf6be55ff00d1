//go:build !linux

package login

import "net/netip"

// ownerOf does not know whose a connection is.
func ownerOf(_, _ netip.AddrPort) (uid int, known bool) { return 0, false }
