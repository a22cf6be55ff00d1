package systemd_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/orla-project/orla/internal/app/systemd"
)

// manager is the receiving end of NOTIFY_SOCKET.
type manager struct{ *net.UnixConn }

// newManager listens where name says, and puts that into the environment.
func newManager(t *testing.T, name string) manager {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return manager{conn}
}

func (m manager) receive(t *testing.T) string {
	t.Helper()
	if err := m.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, err := m.Read(buf)
	if err != nil {
		t.Fatalf("no notification: %v", err)
	}
	return string(buf[:n])
}

// quiet fails the test if there is a notification. One that was sent is there at once.
func (m manager) quiet(t *testing.T) {
	t.Helper()
	if err := m.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	if n, err := m.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("received %q, %v; want nothing", buf[:n], err)
	}
}

// text makes a status that is always the same.
func text(status string) func() string { return func() string { return status } }

// TestNotifications: systemd is told of each step of a life, over a socket of either kind (SPEC K1).
func TestNotifications(t *testing.T) {
	for kind, name := range map[string]string{
		"file":     filepath.Join(t.TempDir(), "notify"),
		"abstract": "@orla-test-" + strconv.Itoa(os.Getpid()),
	} {
		t.Run(kind, func(t *testing.T) {
			m := newManager(t, name)
			var log bytes.Buffer
			n := systemd.NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
			for _, step := range []struct {
				tell func()
				want string
			}{
				{func() { n.Ready(text("1 of 2 capsules ready")) }, "READY=1\nSTATUS=1 of 2 capsules ready"},
				{func() { n.Status(text("2 of 2 capsules ready")) }, "STATUS=2 of 2 capsules ready"},
				{func() { n.Status(text("a\nb\r\nMAINPID=1")) }, "STATUS=a b  MAINPID=1"},
				{func() { n.Status(text("a b  MAINPID=1")) }, ""}, // it was told
				{func() { n.Alive() }, "WATCHDOG=1"},
				{func() { n.Extend(1500 * time.Millisecond) }, "EXTEND_TIMEOUT_USEC=1500000"},
				{func() { n.Stopping("signal: terminated") }, "STOPPING=1\nSTATUS=signal: terminated"},
			} {
				step.tell()
				if step.want == "" {
					m.quiet(t)
					continue
				}
				if got := m.receive(t); got != step.want {
					t.Errorf("told %q; want %q", got, step.want)
				}
			}
			if log.Len() > 0 {
				t.Errorf("log: %s", &log)
			}
		})
	}
}

// TestStoppingIsTheLastWord: a reload that ends afterwards does not make the
// service ready again (SPEC K1).
func TestStoppingIsTheLastWord(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	n := systemd.NewNotifier(slog.New(slog.DiscardHandler))
	n.Ready(func() string {
		n.Stopping("stopping") // as this status is made
		return "ready"
	})
	n.Reloading()
	n.Ready(text("ready"))
	n.Status(text("ready"))
	n.Extend(time.Second)
	n.Alive()
	for _, want := range []string{"STOPPING=1\nSTATUS=stopping", "EXTEND_TIMEOUT_USEC=1000000", "WATCHDOG=1"} {
		if got := m.receive(t); got != want {
			t.Errorf("told %q; want %q", got, want)
		}
	}
	m.quiet(t)
}

// TestNoStatusFollowsANewerOne: what was made before is sent before.
func TestNoStatusFollowsANewerOne(t *testing.T) {
	const tellers, each = 4, 250
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	n := systemd.NewNotifier(slog.New(slog.DiscardHandler))
	var made atomic.Int64
	newest := func() string { return strconv.FormatInt(made.Add(1), 10) }
	for range tellers {
		go func() {
			for range each {
				n.Status(newest)
			}
		}()
	}
	for want := range tellers * each {
		if got := m.receive(t); got != "STATUS="+strconv.Itoa(want+1) {
			t.Fatalf("status %d is %q", want+1, got)
		}
	}
}

// TestReloadingSaysWhen: notify-reload goes by the monotonic clock (SPEC K1).
func TestReloadingSaysWhen(t *testing.T) {
	m := newManager(t, filepath.Join(t.TempDir(), "notify"))
	n := systemd.NewNotifier(slog.New(slog.DiscardHandler))
	var last int64
	for range 2 {
		n.Reloading()
		got := m.receive(t)
		stamp, ok := strings.CutPrefix(got, "RELOADING=1\nMONOTONIC_USEC=")
		usec, err := strconv.ParseInt(stamp, 10, 64)
		if !ok || err != nil || usec <= last {
			t.Fatalf("told %q after %d: %v", got, last, err)
		}
		last = usec
	}
}

// TestNobodyToTell: without systemd nothing happens (SPEC K1).
func TestNobodyToTell(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	n := systemd.NewNotifier(slog.New(slog.DiscardHandler))
	if n != nil {
		t.Fatal("there is a Notifier; want nil")
	}
	n.Ready(text("x"))
	n.Reloading()
	n.Status(text("x"))
	n.Alive()
	n.Extend(time.Second)
	n.Stopping("x")
	if n.Watchdog() != 0 {
		t.Errorf("watchdog = %s; want none", n.Watchdog())
	}
}

// TestManagerThatIsGone: a service does not suffer from a manager that does not listen.
func TestManagerThatIsGone(t *testing.T) {
	name := filepath.Join(t.TempDir(), "notify")
	m := newManager(t, name)
	var log bytes.Buffer
	n := systemd.NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	n.Ready(text("ready"))
	if !strings.Contains(log.String(), "READY=1") {
		t.Errorf("log: %s; want what could not be told", &log)
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	again := newManager(t, name)
	n.Status(text("ready")) // which was not told
	if got := again.receive(t); got != "STATUS=ready" {
		t.Errorf("told %q once the manager was back", got)
	}
}

// TestWatchdogInterval: it is served where systemd asks this very process for it.
func TestWatchdogInterval(t *testing.T) {
	newManager(t, filepath.Join(t.TempDir(), "notify"))
	self := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		usec, pid string
		want      time.Duration
		warns     bool
	}{
		{"30000000", self, 30 * time.Second, false},
		{"30000000", "", 30 * time.Second, false},
		{"30000000", "1", 0, false},
		{"", self, 0, false},
		{"soon", self, 0, true},
		{"-1", self, 0, true},
	} {
		t.Setenv("WATCHDOG_USEC", c.usec)
		t.Setenv("WATCHDOG_PID", c.pid)
		var log bytes.Buffer
		n := systemd.NewNotifier(slog.New(slog.NewTextHandler(&log, nil)))
		if got := n.Watchdog(); got != c.want || log.Len() > 0 != c.warns {
			t.Errorf("WATCHDOG_USEC=%s WATCHDOG_PID=%s: %s, log %q; want %s", c.usec, c.pid, got, &log, c.want)
		}
	}
}
