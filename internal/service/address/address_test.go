package address_test

import (
	"testing"

	"github.com/orla-project/orla/internal/service/address"
)

// SPEC-TOOLS 5.4: a host that no tool may reach is known in every form of it.
func TestT54ForbiddenHosts(t *testing.T) {
	for host, want := range map[string]bool{
		"169.254.169.254": true, "169.254.169.254.": true, "::ffff:169.254.169.254": true, "::ffff:a9fe:a9fe": true, "64:ff9b::a9fe:a9fe": true,
		"2852039166": true, "0xa9fea9fe": true, "0XA9FEA9FE": true, "0251.0376.0251.0376": true, "0xa9.0xfe.0xa9.0xfe": true, "169.254.43518": true, "169.16689662": true,
		"169.0376.0xa9.254": true, "fd00:ec2::254": true, "fe80::1": true, "fe80::1%eth0": true, "100.100.100.200": true, "168.63.129.16": true,
		"metadata.google.internal": true, "Metadata.Google.Internal.": true, "metadata.goog": true, "0.0.0.0": true, "0": true, "::": true, "224.0.0.1": true, "255.255.255.255": true,

		"127.0.0.1": false, "2130706433": false, "localhost": false, "::1": false, "10.0.0.1": false, "192.168.1.1": false, "100.64.0.1": false, "fd12::1": false,
		"8.8.8.8": false, "2606:4700::1111": false, "example.com": false, "metadata": false, "metadata.example.com": false, "169.254.169.254.nip.io": false,
		"1.2.3.4.5": false, "0b1": false, "0o7": false, "1_0": false, "99999999999": false, "a9fea9fe": false, "": false, ".": false,
	} {
		if got := address.ForbiddenHost(host); (got != "") != want {
			t.Errorf("%s: %q", host, got)
		}
	}
}
