package systemd_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/orla-project/orla/internal/app/systemd"
)

// asActivated makes the test binary a service that systemd gave sockets to.
const asActivated = "ORLA_TEST_ACTIVATED"

func TestMain(m *testing.M) {
	if os.Getenv(asActivated) != "" {
		activated()
		return
	}
	os.Exit(m.Run())
}

// activated says what it was given, and answers one connection on each.
func activated() {
	var sockets []string
	for fd := 3; fd < 6; fd++ {
		socket, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd)) // "" where there is none
		sockets = append(sockets, socket)
	}
	given := systemd.Listeners()
	fmt.Println("again", len(systemd.Listeners()), "env", os.Getenv("LISTEN_FDS")+os.Getenv("LISTEN_PID")+os.Getenv("LISTEN_FDNAMES"))
	child, err := exec.Command("sh", "-c", "readlink /proc/$$/fd/*; true").Output()
	inherited := slices.ContainsFunc(strings.Fields(string(child)), func(file string) bool { return slices.Contains(sockets, file) })
	fmt.Println("inherited", inherited, err)
	var names []string
	for name, listeners := range given {
		names = append(names, fmt.Sprintf("%q:%d", name, len(listeners)))
	}
	slices.Sort(names)
	fmt.Println(names)
	for _, listeners := range given {
		for _, l := range listeners {
			conn, err := l.Accept()
			if err != nil {
				fmt.Println(err)
				return
			}
			_ = conn.Close()
		}
	}
}

// activate runs the test binary with sockets, as systemd does.
func activate(t *testing.T, names, pid string, listeners ...*net.TCPListener) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `LISTEN_PID=`+pid+` exec "$0"`, self)
	cmd.Env = append(os.Environ(), asActivated+"=1", "LISTEN_FDNAMES="+names, fmt.Sprint("LISTEN_FDS=", len(listeners)))
	for _, l := range listeners {
		f, err := l.File()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// listening returns sockets that each have a connection waiting.
func listening(t *testing.T, n int) []*net.TCPListener {
	t.Helper()
	var all []*net.TCPListener
	for range n {
		l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		all = append(all, l)
	}
	return all
}

// TestSocketsByName: sockets come by their names, once, and reach no child (SPEC K1).
func TestSocketsByName(t *testing.T) {
	out := activate(t, "orla.socket:orla.socket:other", "$$", listening(t, 3)...)
	for _, want := range []string{`["orla.socket":2 "other":1]`, "again 0 env \n", "inherited false <nil>"} {
		if !strings.Contains(out, want) {
			t.Errorf("it says:\n%s\nwant %q", out, want)
		}
	}
}

// TestSocketsWithoutNames: whoever starts Orla need not name them.
func TestSocketsWithoutNames(t *testing.T) {
	for _, names := range []string{"", "unknown:unknown"} {
		if out := activate(t, names, "$$", listening(t, 2)...); !strings.Contains(out, `["":2]`) {
			t.Errorf("with names %q it says:\n%s", names, out)
		}
	}
}

// TestSocketsOfAnother: what is meant for another process is left alone.
func TestSocketsOfAnother(t *testing.T) {
	if out := activate(t, "orla.socket", "1", listening(t, 1)...); !strings.Contains(out, "[]\n") {
		t.Errorf("it says:\n%s", out)
	}
}
