package login

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// SPEC N3: another user of the machine is not led to the page of a login, and does not use the address up.
func TestN3TheBrowsersAddressIsForThisUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can connect as another user")
	}
	o := newOpening()
	o.leads("https://issuer.example.com/")
	var pages []string
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		page, _ := o.take(r)
		pages = append(pages, page)
	}))
	defer s.Close()
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	for _, uid := range []int{65534, 0, 0} {
		if err := getAs(uid, at); err != nil {
			t.Fatal(err)
		}
	}
	if got := fmt.Sprintf("%q", pages); got != `["" "https://issuer.example.com/" ""]` {
		t.Errorf("another user, this one, and this one again get %s", got)
	}
}

// getAs makes a request over a connection of another user.
func getAs(uid int, at netip.AddrPort) error {
	over := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the goroutine
		over <- func() error {
			if err := syscall.Setfsuid(uid); err != nil {
				return err
			}
			fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = syscall.Close(fd) }()
			if err := syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}); err != nil {
				return err
			}
			if _, err := syscall.Write(fd, []byte("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")); err != nil {
				return err
			}
			_, err = syscall.Read(fd, make([]byte, 1))
			return err
		}()
	}()
	return <-over
}

// SPEC N3: whose a connection is.
func TestN3OwnerOfAConnection(t *testing.T) {
	if runtime.GOARCH == "s390x" {
		t.Skip("the lines are of a machine with the other byte order")
	}
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     7        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000     7        0 2 1 0 20 4 30 10 -1
   2: 0100007F:C350 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 3 1 0 20 4 30 10 -1
   3: 0000000000000000FFFF00000100007F:C351 0000000000000000FFFF00000100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 4 1 0 20 4 30 10 -1
   4: 00000000000000000000000001000000:C352 00000000000000000000000001000000:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 5 1 0 20 4 30 10 -1
   5: 0100007F:C353 0100007F:1F90 05 00000000:00000000 00:00000000 00000000     0        0 0 1 0 20 4 30 10 -1
`
	for end, want := range map[string]int{"127.0.0.1:50003": nobody, "127.0.0.1:50000": 1000, "127.0.0.1:50001": 1001, "[::1]:50002": 1002, "127.0.0.1:50002": -1, "127.0.0.2:50000": -1} {
		from := netip.MustParseAddrPort(end)
		to := netip.MustParseAddrPort("127.0.0.1:8080")
		if from.Addr().Is6() {
			to = netip.MustParseAddrPort("[::1]:8080")
		}
		uid, found := ownerIn(bufio.NewScanner(strings.NewReader(table)), from, to)
		if found != (want >= 0) || found && uid != want {
			t.Errorf("%s: %d, %t", end, uid, found)
		}
	}
}
