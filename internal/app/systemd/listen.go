package systemd

import (
	"net"
	"strings"

	"github.com/coreos/go-systemd/v22/activation"
)

// Listeners returns the sockets that the service manager listens on for this
// process, by their FileDescriptorName, which is the socket unit's name unless
// that gives another; "" holds those without a name. They are the caller's, and
// only the first call returns them. No process that is started later inherits
// them. Sockets that are not for connections are left out.
func Listeners() map[string][]net.Listener {
	// The library's error is for those to come: it is always nil.
	named, _ := activation.ListenersWithNames()
	for name, listeners := range named {
		if strings.HasPrefix(name, "LISTEN_FD_") || name == "unknown" { // the library's word, and systemd's
			delete(named, name)
			named[""] = append(named[""], listeners...)
		}
	}
	return named
}
