package listen

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// madeUp is a connection from an address that reports when it is closed.
type madeUp struct {
	net.Conn
	from   string
	closed func(from string)
}

func (c madeUp) Close() error {
	c.closed(c.from)
	return nil
}

func (c madeUp) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.from))
}

// If many addresses have one pending connection each, the oldest connection is closed to make
// room for one more. The same holds for the connections of callers (SPEC G7, S2).
func TestS2TheOldestConnectionOfTheLargestIsClosed(t *testing.T) {
	const most, pending, known = 40, 20, 30
	var closed []string
	all := newConnections(most)
	add := func(from string) *conn {
		one := &conn{Conn: madeUp{from: from, closed: func(from string) { closed = append(closed, from) }}, used: func() {}, all: all}
		all.add(one)
		return one
	}
	of := func(network string) []string {
		return slices.DeleteFunc(slices.Clone(closed), func(from string) bool { return !strings.HasPrefix(from, network) })
	}
	var want []string
	for i := range 4 * pending {
		if i%7 == 0 { // an address with two loses one of them before the others
			add("127.1.1.1:1000")
			add("127.1.1.1:1000")
		}
		from := fmt.Sprintf("127.2.%d.1:1000", i)
		add(from)
		want = append(want, from)
	}
	if got := of("127.2."); len(got) < 3*pending || !slices.Equal(got, want[:len(got)]) {
		t.Errorf("closed are %q, want the oldest ones", got)
	}
	want = nil
	for i := range 2 * known {
		from := fmt.Sprintf("127.3.%d.1:1000", i)
		all.know(add(from), "")
		want = append(want, from)
	}
	if got := of("127.3."); !slices.Equal(got, want[:known]) {
		t.Errorf("closed are %q of callers, want the oldest ones", got)
	}
}
