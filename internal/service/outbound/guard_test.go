package outbound

import (
	"net/netip"
	"testing"
)

// SPEC-TOOLS 5.4: which addresses may be reached under which policy.
func TestAddresses(t *testing.T) {
	const (
		public = iota
		loopback
		private
		never
	)
	for text, class := range map[string]int{
		"8.8.8.8":                public,
		"93.184.216.34":          public,
		"2606:4700::1111":        public,
		"2a00:1450:4001::200e":   public,
		"::ffff:8.8.8.8":         public,
		"64:ff9b::808:808":       public, // 8.8.8.8 behind NAT64
		"127.0.0.1":              loopback,
		"127.255.255.254":        loopback,
		"::1":                    loopback,
		"::ffff:127.0.0.1":       loopback,
		"::1%lo":                 loopback,
		"64:ff9b::7f00:1":        loopback,
		"10.0.0.1":               private,
		"172.16.0.1":             private,
		"172.31.255.255":         private,
		"192.168.1.1":            private,
		"100.64.0.1":             private,
		"fd12:3456::1":           private,
		"fc00::1":                private,
		"::ffff:10.0.0.1":        private,
		"64:ff9b::a00:1":         private,
		"169.254.169.254":        never,
		"169.254.170.2":          never,
		"169.254.0.1":            never,
		"fe80::1":                never,
		"fe80::a9fe:a9fe":        never,
		"fe80::1%eth0":           never,
		"::ffff:169.254.169.254": never,
		"64:ff9b::a9fe:a9fe":     never,
		"::a9fe:a9fe":            never, // IPv4-compatible
		"2002:a9fe:a9fe::1":      never, // 6to4
		"2001:0:a9fe:a9fe::1":    never, // Teredo
		"64:ff9b:1::a9fe:a9fe":   never,
		"fd00:ec2::254":          never,
		"fd00:ec2::23":           never,
		"fd20:ce::254":           never,
		"100.100.100.200":        never,
		"::ffff:100.100.100.200": never,
		"168.63.129.16":          never,
		"192.0.0.192":            never,
		"0.0.0.0":                never,
		"0.1.2.3":                never,
		"::":                     never,
		"224.0.0.1":              never,
		"239.255.255.250":        never,
		"ff02::1":                never,
		"255.255.255.255":        never,
		"240.0.0.1":              never,
		"192.0.2.1":              never,
		"198.18.0.1":             never,
		"2001:db8::1":            never,
		"fec0::1":                never,
	} {
		addr := netip.MustParseAddr(text)
		for private, from := range map[Private]int{PrivateNone: public, PrivateLoopback: loopback, PrivateAll: private} {
			if got, want := classifier(classify).check(addr, private, false), class <= from; (got == nil) != want {
				t.Errorf("%s under %s: got %v, want allowed %v", text, private, got, want)
			}
			far := class <= from && (class != loopback || private == PrivateAll)
			if got := classifier(classify).check(addr, private, true); (got == nil) != far {
				t.Errorf("%s, far away, under %s: got %v, want allowed %v", text, private, got, far)
			}
		}
	}
}
