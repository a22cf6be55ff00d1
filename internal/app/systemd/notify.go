package systemd

import (
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// socketVar names the socket that a service manager reads notifications from.
// A name that begins with @ is in Linux's abstract namespace.
const socketVar = "NOTIFY_SOCKET"

// writeTimeout bounds a notification to a manager that does not read. Its
// socket holds many.
const writeTimeout = time.Second

// Notifier tells the service manager where a service is in its life, as
// sd_notify(3) has it. A nil Notifier tells nobody. Its methods may be called
// from any goroutine. None returns an error, since no service can do anything
// about one: it is logged.
type Notifier struct {
	to       *net.UnixAddr
	log      *slog.Logger
	watchdog time.Duration

	telling sync.Mutex // held while a status is made and sent, so that none follows a newer one; taken before mu

	mu       sync.Mutex // guards what follows, and the order of notifications
	status   string     // the line of the last one that was sent
	stopping bool       // nothing else is told of the service any more
}

// NewNotifier returns a Notifier for the manager that the environment names,
// or nil if it names none.
func NewNotifier(log *slog.Logger) *Notifier {
	name := os.Getenv(socketVar)
	if name == "" {
		return nil
	}
	n := &Notifier{to: &net.UnixAddr{Name: name, Net: "unixgram"}, log: log}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog is not served", "err", err)
	}
	n.watchdog = watchdog
	return n
}

// Watchdog is how long the manager waits for Alive before it takes the service
// for dead; 0 if it does not.
func (n *Notifier) Watchdog() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog
}

// Ready says that the service answers: after its start, and after a reload,
// whether that worked or not. status makes what people are told of it. Like
// Reloading and Status, it does nothing once the service is stopping.
func (n *Notifier) Ready(status func() string) { n.tell(status, daemon.SdNotifyReady) }

// Reloading says that a reload has begun. Ready must follow.
func (n *Notifier) Reloading() {
	// The manager wants to know when, to tell the end of this reload from that
	// of one before it (Type=notify-reload).
	n.send(n.goesOn, daemon.SdNotifyReloading, strings.TrimSpace(daemon.SdNotifyMonotonicUsec()))
}

// Stopping says that the service is about to end, and why.
func (n *Notifier) Stopping(status string) {
	n.send(func() bool {
		n.stopping = true
		return true
	}, daemon.SdNotifyStopping, statusLine(status))
}

// Extend asks for more time, from now on, for the start, the reload or the stop
// that is under way.
func (n *Notifier) Extend(by time.Duration) {
	n.send(always, "EXTEND_TIMEOUT_USEC="+strconv.FormatInt(by.Microseconds(), 10))
}

// Alive says that the service is not stuck.
func (n *Notifier) Alive() { n.send(always, daemon.SdNotifyWatchdog) }

// Status is what people are told of the service, which text makes. The same text
// again is not sent.
func (n *Notifier) Status(text func() string) { n.tell(text) }

// tell makes a status and sends it, after the other lines. One that comes alone
// is not sent again.
func (n *Notifier) tell(status func() string, lines ...string) {
	if n == nil {
		return
	}
	n.telling.Lock()
	defer n.telling.Unlock()
	line := statusLine(status())
	n.send(func() bool { return n.goesOn() && (len(lines) > 0 || line != n.status) }, append(lines, line)...)
}

// goesOn reports whether the service is not stopping. The caller holds n.mu.
func (n *Notifier) goesOn() bool { return !n.stopping }

func always() bool { return true }

// statusPrefix begins the line of a status.
const statusPrefix = "STATUS="

// statusLine is text as a line: a break would begin another assignment.
func statusLine(text string) string {
	return statusPrefix + strings.NewReplacer("\n", " ", "\r", " ").Replace(text)
}

// send sends lines as one notification if that is still wanted, which is asked
// with n.mu held.
func (n *Notifier) send(wanted func() bool, lines ...string) {
	if n == nil {
		return
	}
	n.mu.Lock()
	var err error
	if wanted() {
		err = n.sendLocked(lines)
	}
	n.mu.Unlock()
	if err != nil {
		n.log.Warn("tell systemd", "what", lines[0], "err", err)
	}
}

func (n *Notifier) sendLocked(lines []string) error {
	if err := n.write(strings.Join(lines, "\n")); err != nil {
		return err
	}
	if last := lines[len(lines)-1]; strings.HasPrefix(last, statusPrefix) {
		n.status = last
	}
	return nil
}

// write dials each time: notifications are rare, and a manager that was started
// again has a socket of the same name. The library's own would wait for ever for
// a manager that does not read.
func (n *Notifier) write(state string) error {
	conn, err := net.DialUnix(n.to.Net, nil, n.to)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // a datagram is there, or it is not
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(state))
	return err
}
